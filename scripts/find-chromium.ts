// Prints the path of Chromium for the tests of the web console. Installs Debian's package where possible; exits with 1 if
// there is no Chromium.
import { chromiumProgram } from '../tests/support/backends/server-binaries.ts'

const program = process.env['CONSOLE_TEST_BROWSER'] ?? (await chromiumProgram())
if (program === null) process.exit(1)
console.log(program)
