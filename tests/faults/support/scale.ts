/** How much a run proves: `npm test` a little, `npm run test:faults` the figures promised, `--long` more. */
export type RunLength = 'test' | 'faults' | 'long'

const { TEST_FAULTS, TEST_SEED } = process.env
const runLength: RunLength =
  TEST_FAULTS === 'long' ? 'long' : TEST_FAULTS === undefined ? 'test' : 'faults'

/** The figure for this run; a long one takes that of `test:faults` unless it has its own. */
export const scale = <Figure>(figures: {
  readonly test: Figure
  readonly faults: Figure
  readonly long?: Figure
}): Figure => (runLength === 'long' ? (figures.long ?? figures.faults) : figures[runLength])

/** False in `npm test`, for what takes minutes by its nature. */
export const isFaultRun = runLength !== 'test'

/** Mulberry32, from the run's seed (`npm run test:faults -- --seed 7`): the same chances for the same seed. */
export function seededRandom(): () => number {
  let state = Number(TEST_SEED ?? 1)
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
