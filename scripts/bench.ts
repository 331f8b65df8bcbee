// `npm run bench -- <name> [options]`: runs a benchmark. Without a name, the script lists the benchmarks.
import { globSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { installBench } from './install-bench.ts'

const folder = join(import.meta.dirname, '../bench')
const names = globSync('*.ts', { cwd: folder })
  .map((file) => basename(file, '.ts'))
  .toSorted()

const [name, ...options] = process.argv.slice(2)
if (name !== undefined && names.includes(name)) {
  const file = join(folder, `${name}.ts`)
  if (options.includes('--help')) console.log(headOf(name))
  else await run(file, options)
} else {
  if (name !== undefined) {
    console.error(`There is no benchmark ${name}.`)
    process.exitCode = 1
  }
  const width = Math.max(...names.map((known) => known.length))
  console.log('npm run bench -- <name> [options]\n')
  for (const known of names) console.log(`  ${known.padEnd(width)}  ${summaryOf(known)}`)
}

/** Runs the benchmark in `file`. If it rejects an option, prints the error and the benchmark's own description. */
async function run(file: string, args: readonly string[]): Promise<void> {
  installBench()
  // A benchmark reads its options from process.argv. So the arguments are set as if Node had been started with the
  // benchmark's file.
  process.argv = [process.execPath, file, ...args]
  try {
    await import(file)
  } catch (error) {
    if (!isOptionError(error)) throw error
    console.error(`${error.message}\n\n${headOf(basename(file, '.ts'))}`)
    process.exitCode = 1
  }
}

/** Whether `parseArgs` of `node:util` has thrown the error. */
function isOptionError(error: unknown): error is Error {
  return (
    error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')
  )
}

/** Returns the comment at the head of a benchmark, which describes its options. */
function headOf(benchmark: string): string {
  const source = readFileSync(join(folder, `${benchmark}.ts`), 'utf8')
  const lines = source
    .slice(0, source.search(/^import /m))
    .trim()
    .split('\n')
  return lines.map((line) => line.replace(/^(?:\/\/|\/\*\*| \*\/?)\s?/, '')).join('\n')
}

/** Returns the description of a benchmark up to the first full stop or colon, in one line. */
function summaryOf(benchmark: string): string {
  return /^[^.:]*/.exec(headOf(benchmark).replaceAll('\n', ' ').trim())?.[0] ?? ''
}
