// `npm run test:faults`: runs the fault tests at full size, which takes a few minutes, and prints their results as
// a table. `-- --long` runs the longest form of each test. `-- --seed 7` injects faults at other random times, and `--
// sweeper` runs only files whose name contains `sweeper`.
import { parseArgs } from 'node:util'
import type { TestAnnotation } from 'vitest'
import type { TestCase, TestModule } from 'vitest/node'
import { startVitest } from 'vitest/node'

const files = [
  'services/coordinator/src/run/progress.model.test.ts',
  'services/coordinator/src/adapters/memory/crash.campaign.test.ts',
  'tests/faults/coordinator-',
]

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    long: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
  },
})
if (!/^\d{1,9}$/.test(values.seed)) {
  console.error('--seed must be a number')
  process.exit(1)
}
process.env['TEST_FAULTS'] = values.long ? 'long' : 'faults'
process.env['TEST_SEED'] = values.seed

interface Row {
  readonly file: string
  readonly test: string
  readonly seconds: number
  readonly passed: boolean
  readonly measurements: readonly string[]
}

/** Collects the results that the tests attach as annotations of the type `measurement`. */
class Measurements {
  readonly #measurements = new Map<string, string[]>()
  readonly rows: Row[] = []

  onTestCaseAnnotate({ id }: TestCase, { type, message }: TestAnnotation): void {
    if (type === 'measurement')
      this.#measurements.set(id, [...(this.#measurements.get(id) ?? []), message])
  }

  onTestCaseResult(test: TestCase): void {
    const { state } = test.result()
    if (state === 'skipped') return
    this.rows.push({
      file: nameOf(test.module),
      test: test.name,
      seconds: (test.diagnostic()?.duration ?? 0) / 1_000,
      passed: state === 'passed',
      measurements: this.#measurements.get(test.id) ?? [],
    })
  }
}

const nameOf = ({ moduleId }: TestModule): string =>
  (moduleId.split('/').at(-1) ?? '').replace(/\.test\.ts$/, '')

const startedAt = performance.now()
const measurements = new Measurements()
const vitest = await startVitest('test', positionals.length > 0 ? positionals : files, {
  mode: 'all',
  watch: false,
  reporters: ['default', measurements],
})
await vitest.close()

for (const [file, rows] of Map.groupBy(measurements.rows, (row) => row.file)) {
  console.log(`\n${file}`)
  for (const { test, seconds, passed, measurements: lines } of rows)
    for (const measurement of passed && lines.length > 0 ? lines : [test])
      console.log(`  ${passed ? '✓' : '✗'} ${seconds.toFixed(1).padStart(6)} s  ${measurement}`)
}
const failed = measurements.rows.filter(({ passed }) => !passed).length
const minutes = ((performance.now() - startedAt) / 60_000).toFixed(1)
console.log(
  `\n${measurements.rows.length} tests, ${failed} failed, ${minutes} minutes, seed ${values.seed}${values.long ? ', long' : ''}`,
)
