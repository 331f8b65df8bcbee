// `npm run test:fuzz`: sends mutated requests, responses and messages to the services for five minutes.
// `-- --seconds 60` sets the duration, `-- --seed 7` selects other inputs, and `-- --target imports` tests a single
// target. `-- --target imports --seed 7 --seconds 0 --save <name>` stores the input of a seed as a permanent test case.
// `-- --target doubling --place <text>` measures processor time only at the places whose name contains the text.
import { randomInt } from 'node:crypto'
import { parseArgs } from 'node:util'
import { startVitest } from 'vitest/node'

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: String(randomInt(1, 1_000_000_000)) },
    seconds: { type: 'string', default: '300' },
    target: { type: 'string' },
    save: { type: 'string' },
    place: { type: 'string' },
  },
})
for (const name of ['seed', 'seconds'] as const)
  if (!/^\d{1,9}$/.test(values[name])) {
    console.error(`--${name} must be a whole number`)
    process.exit(1)
  }
process.env['FUZZ_SEED'] = values.seed
process.env['FUZZ_SECONDS'] = values.seconds
if (values.target !== undefined) process.env['FUZZ_TARGET'] = values.target
if (values.save !== undefined) process.env['FUZZ_SAVE'] = values.save

if (values.place !== undefined) process.env['FUZZ_PLACE'] = values.place

// The target `doubling` has a file of its own, because it measures processor time and mutates nothing.
const file =
  values.target === undefined
    ? ''
    : values.target === 'doubling'
      ? 'doubling.test.ts'
      : 'fuzz.test.ts'
const vitest = await startVitest('test', [`tests/fuzz/${file}`], { mode: 'all', watch: false })
await vitest.close()
