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

/** Mulberry32, seeded by `npm run test:faults -- --seed 7`: the same seed gives the same sequence. */
export function seededRandom(): () => number {
  let state = Number(TEST_SEED ?? 1)
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
