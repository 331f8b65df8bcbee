import { type Random, randomOf } from '../random.ts'

/**
 * Size of the tests: `test` in `npm test`, `faults` in `npm run test:faults`, `long` with its option
 * `--long`.
 */
export type RunLength = 'test' | 'faults' | 'long'

const { TEST_FAULTS, TEST_SEED } = process.env
const runLength: RunLength =
  TEST_FAULTS === 'long' ? 'long' : TEST_FAULTS === undefined ? 'test' : 'faults'

/** Returns the size for this run. A long run uses the size of `faults` unless it has its own. */
export const scale = <Size>(sizes: {
  readonly test: Size
  readonly faults: Size
  readonly long?: Size
}): Size => (runLength === 'long' ? (sizes.long ?? sizes.faults) : sizes[runLength])

/** False in `npm test`, which leaves out the tests that take minutes by design. */
export const isFaultRun = runLength !== 'test'

/** Returns the random numbers of this run: `npm run test:faults -- --seed 7` sets the seed. */
export const seededRandom = (): Random => randomOf(Number(TEST_SEED ?? 1))
