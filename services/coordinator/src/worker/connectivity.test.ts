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

  it('sends no further probe if the check in flight fails', async () => {
    const { sent, connectivity } = fixture()
    const results = [connectivity.check(), connectivity.check(), connectivity.check()]
    sent[0]?.(false)
    await untilSent(sent, 2)
    sent[1]?.(false)
    expect(await Promise.all(results)).toEqual([false, false, false])
    expect(sent).toHaveLength(2)
  })

  it('sends one further probe for all checks that were requested while a check was in flight', async () => {
    const { sent, connectivity } = fixture()
    const results = [connectivity.check(), connectivity.check(), connectivity.check()]
    sent[0]?.(true)
    await untilSent(sent, 2)
    sent[1]?.(true)
    expect(await Promise.all(results)).toEqual([true, true, true])
    expect(sent).toHaveLength(2)
  })
})
