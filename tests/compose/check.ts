import { setTimeout as delay } from 'node:timers/promises'
import type { Output } from './stack.ts'

/** @throws {Error} with `otherwise`, unless it is so. */
export function expect(isSo: boolean, otherwise: string): asserts isSo {
  if (!isSo) throw new Error(otherwise)
}

/** Looks again and again until `look` says yes. @throws {Error} after `seconds`. */
export async function until(
  what: string,
  look: () => Promise<boolean>,
  seconds = 60,
): Promise<void> {
  const deadline = performance.now() + seconds * 1_000
  while (!(await look().catch(() => false))) {
    expect(performance.now() < deadline, `not within ${seconds} s: ${what}`)
    await delay(250)
  }
}

/** What a start said that has to fail and to say `why`, without Compose's own progress. */
export function refusal({ code, text }: Output, ...why: readonly string[]): string {
  expect(code === 1 && why.every((part) => text.includes(part)), `exit code ${code}: ${text}`)
  const said = text.split('\n').filter((line) => !/^$|^ (Container|Network|Volume) /.test(line))
  return said.join('\n             ')
}
