import { setTimeout as delay } from 'node:timers/promises'
import type { Output } from './docker.ts'

/**
 * Fails unless the condition holds.
 *
 * @throws {Error} with the message `otherwise`
 */
export function expect(condition: boolean, otherwise: string): asserts condition {
  if (!condition) throw new Error(otherwise)
}

/**
 * Polls `check` until it returns true. An error of `check` counts as false.
 *
 * @throws {Error} if `check` has not returned true within `seconds`
 * @throws the abort reason of `signal` if the signal is aborted.
 */
export async function until(
  what: string,
  check: () => Promise<boolean>,
  seconds = 60,
  signal?: AbortSignal,
): Promise<void> {
  const deadline = performance.now() + seconds * 1_000
  while (!(await check().catch(() => false))) {
    signal?.throwIfAborted()
    expect(performance.now() < deadline, `not within ${seconds} s: ${what}`)
    await delay(250)
  }
}

/**
 * Checks that a command failed with exit code 1 and that its output contains each text of `why`.
 *
 * @returns the output of the command without Compose's own progress lines
 */
export function failureReport({ code, text }: Output, ...why: readonly string[]): string {
  expect(code === 1 && why.every((part) => text.includes(part)), `exit code ${code}: ${text}`)
  const lines = text.split('\n').filter((line) => !/^$|^ (Container|Network|Volume) /.test(line))
  return lines.join('\n             ')
}
