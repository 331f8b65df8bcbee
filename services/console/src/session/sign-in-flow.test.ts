import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it } from 'vitest'
import { createFlowSeal } from './sign-in-flow.ts'

const key = new Secret('a-service-key-of-the-console-0123456789')
const flow = {
  state: 's'.repeat(43),
  nonce: 'n'.repeat(43),
  verifier: 'v'.repeat(43),
  returnTo: '/',
}

describe('the cookie of an OpenID sign-in', () => {
  it('is opened by each replica with the same service key, and hides the nonce and the verifier', () => {
    const sealed = createFlowSeal(key, () => 0).seal(flow)
    expect(createFlowSeal(key, () => 599_999).open(sealed)).toEqual(flow)
    for (const part of [flow.state, flow.nonce, flow.verifier]) expect(sealed).not.toContain(part)
  })

  it('is short enough for every browser with the longest address of a page', () => {
    const sealed = createFlowSeal(key, () => 1e13).seal({
      ...flow,
      returnTo: '/'.repeat(500),
      session: 'd'.repeat(64),
    })
    expect(sealed.length).toBeLessThanOrEqual(1_100)
  })

  it('is not opened after ten minutes, with another service key, or after any change', () => {
    const sealed = createFlowSeal(key, () => 0).seal(flow)
    const open = (text: string, now = 0): unknown => createFlowSeal(key, () => now).open(text)
    expect(open(sealed, 600_000)).toBeNull()
    expect(createFlowSeal(new Secret('x'.repeat(32)), () => 0).open(sealed)).toBeNull()
    for (const changed of ['', `${sealed}A`, ` ${sealed}`, `${sealed}.`, sealed.slice(0, -1)])
      expect(open(changed), changed).toBeNull()
    // A cookie of the previous release is the key of a stored sign-in.
    expect(open('x'.repeat(43))).toBeNull()
  })
})
