import { type Random, randomOf } from '@integration-host/shared/test-support/random'

/**
 * Sizes of the fault tests: `test` in `npm run test:all`, `faults` in `npm run test:faults`, and `long` in
 * `npm run test:faults -- --long`.
 */
export type RunLength = 'test' | 'faults' | 'long'

const { TEST_FAULTS, TEST_SEED } = process.env
const runLength: RunLength =
  TEST_FAULTS === 'long' ? 'long' : TEST_FAULTS === undefined ? 'test' : 'faults'

/**
 * Returns the value for the size of this run. A long run uses the value of `faults` if there is no value for
 * `long`.
 */
export const scale = <Size>(sizes: {
  readonly test: Size
  readonly faults: Size
  readonly long?: Size
}): Size => (runLength === 'long' ? (sizes.long ?? sizes.faults) : sizes[runLength])

/** Whether tests that always take minutes are run. `npm run test:all` skips them. */
export const isFaultRun = runLength !== 'test'

/** Returns the random number generator of this run. `npm run test:faults -- --seed 7` sets the seed. */
export const seededRandom = (): Random => randomOf(Number(TEST_SEED ?? 1))
