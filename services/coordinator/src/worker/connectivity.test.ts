import { describe, expect, it } from 'vitest'
import { createConnectivity } from './connectivity.ts'

/** Connectivity with one probe, whose results the test decides: `sent` resolves the probes in the order of sending. */
function fixture() {
  const sent: ((hasResponded: boolean) => void)[] = []
  const probe = (): Promise<boolean> => new Promise((resolve) => sent.push(resolve))
  return { sent, connectivity: createConnectivity({ probes: [probe], confirmMs: 0 }) }
}
const untilSent = (sent: readonly unknown[], count: number) =>
  expect.poll(() => sent.length).toBe(count)

describe('a check of the internet connection', () => {
  it('does not use a probe that was sent before the check was requested', async () => {
    const { sent, connectivity } = fixture()
    const earlier = connectivity.check()
    const later = connectivity.check()
    sent[0]?.(true)
    expect(await earlier).toBe(true)
    // A round with a failed probe is followed by a second one.
    await untilSent(sent, 2)
    sent[1]?.(false)
    await untilSent(sent, 3)
    sent[2]?.(false)
    expect(await later).toBe(false)
  })

  // A round with a failed probe is followed by a second one. So in both cases two probes are sent for three checks.
  it.each([
    ['sends no further probe if the check in flight fails', false],
    [
      'sends one further probe for all checks that were requested while a check was in flight',
      true,
    ],
  ])('%s', async (_, isOnline) => {
    const { sent, connectivity } = fixture()
    const results = [connectivity.check(), connectivity.check(), connectivity.check()]
    sent[0]?.(isOnline)
    await untilSent(sent, 2)
    sent[1]?.(isOnline)
    expect(await Promise.all(results)).toEqual([isOnline, isOnline, isOnline])
    expect(sent).toHaveLength(2)
  })
})
