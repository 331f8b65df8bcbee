/** What is released when the tests of the current file have ended. */
const releases: (() => Promise<void>)[] = []

/**
 * Registers what is released when the tests of the current file have ended. A module that several test files share cannot
 * call `afterAll` itself, because it is evaluated for the first of them only.
 */
export const atEndOfFile = (release: () => Promise<void>): void => void releases.push(release)

/** Releases what was registered. The setup file of all tests calls it. */
export async function releaseAll(): Promise<void> {
  for (const release of releases.splice(0).toReversed()) await release()
}
