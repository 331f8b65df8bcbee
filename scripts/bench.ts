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
  installBench()
  const file = join(folder, `${name}.ts`)
  // A benchmark reads its options from process.argv. So the arguments are set as if Node had been started with the
  // benchmark's file.
  process.argv = [process.execPath, file, ...options]
  await import(file)
} else {
  if (name !== undefined) {
    console.error(`There is no benchmark ${name}.`)
    process.exitCode = 1
  }
  const width = Math.max(...names.map((known) => known.length))
  console.log('npm run bench -- <name> [options]\n')
  for (const known of names) console.log(`  ${known.padEnd(width)}  ${summaryOf(known)}`)
}

/** Returns the description of a benchmark: the comment at the head of its file, up to the first full stop or colon. */
function summaryOf(benchmark: string): string {
  const source = readFileSync(join(folder, `${benchmark}.ts`), 'utf8')
  const lines = source.slice(0, source.search(/^import /m)).split('\n')
  const comment = lines.map((line) => line.replace(/^(?:\/\/|\/\*\*| \*\/?)\s?/, '')).join(' ')
  return /^[^.:]*/.exec(comment.trim())?.[0] ?? ''
}
