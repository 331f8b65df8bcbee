// Prints the path of Chromium for the tests of the web console. If Chromium is missing, installs Debian's package where
// this is possible, or exits with 1.
import { chromiumProgram } from '../tests/support/backends/server-binaries.ts'

const program = process.env['CONSOLE_TEST_BROWSER'] ?? (await chromiumProgram())
if (program === null) process.exit(1)
console.log(program)
