// The command line of the image, which contains no embedded host: `docker compose run --rm cli …`.
import { runProgram } from './program.ts'

await runProgram()
