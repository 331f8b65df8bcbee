import { Secret } from '@integration-host/shared/secrets/secret'
import { beforeEach, describe, expect, it } from 'vitest'
import { breakOnRejectedClient, type GuardedProvider } from './client-breaker.ts'
import type { ExchangeOutcome, Provider, TokenOutcome } from './provider.ts'

const response = { status: 401, body: '{"error":"invalid_client"}', traceId: null }
const rejected: TokenOutcome = { kind: 'client_refused', retryAfterMs: 0, ...response }
const accepted: TokenOutcome = { kind: 'refused', error: 'invalid_grant', ...response, status: 400 }
const unavailable: TokenOutcome = { kind: 'unknown', ...response, status: 503 }

let clock: number
let calls: number
let changes: boolean[]
let next: () => Promise<TokenOutcome>
let exchange: () => Promise<ExchangeOutcome>
let provider: GuardedProvider

beforeEach(() => {
  clock = 5_000
  calls = 0
  changes = []
  next = async () => rejected
  exchange = async () => rejected
  const refresh: Provider['refresh'] = async () => {
    calls += 1
    return next()
  }
  const unused = async (): Promise<never> => Promise.reject(new Error('not called here'))
  provider = breakOnRejectedClient(
    {
      refresh,
      exchangeCode: () => exchange(),
      usesPkce: unused,
      authorizationUrl: unused,
      issuer: unused,
      revoke: unused,
    },
    { now: () => clock, onChange: (isRejected) => void changes.push(isRejected) },
  )
})

const refresh = () => provider.refresh(new Secret('refresh token'))
const exchangeCode = () =>
  provider.exchangeCode({ code: new Secret('made up'), codeVerifier: null, nonce: null })

describe('the circuit breaker for rejected client credentials', () => {
  it('the breaker allows one probe after 1 s, and allows all calls after the provider has accepted the client credentials', async () => {
    expect(await refresh()).toMatchObject({ kind: 'client_refused', retryAfterMs: 1_000 })
    clock += 999
    expect(await refresh()).toMatchObject({ kind: 'client_refused', retryAfterMs: 1 })
    expect(calls).toBe(1)
    clock += 1
    next = async () => accepted
    expect(provider.heldBackMs()).toBe(0)
    for (let count = 0; count < 3; count += 1) expect(await refresh()).toEqual(accepted)
    expect(calls).toBe(4)
    expect(changes).toEqual([true, false])
  })

  it('a call that the breaker blocks has no trace id', async () => {
    next = async () => ({ ...rejected, traceId: 'trace-1' })
    expect(await refresh()).toMatchObject({ traceId: 'trace-1' })
    expect(await refresh()).toMatchObject({ kind: 'client_refused', traceId: null })
    expect(calls).toBe(1)
  })

  it('the breaker doubles the delay between probes after each rejected probe, up to 60 s', async () => {
    const delays: number[] = []
    for (let probe = 0; probe < 9; probe += 1) {
      await refresh()
      delays.push(provider.heldBackMs())
      clock += provider.heldBackMs()
    }
    expect(delays).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000])
    expect(calls).toBe(9)
    expect(changes).toEqual([true])
  })

  it('the breaker counts the rejections of concurrent calls as one rejection', async () => {
    const gate = Promise.withResolvers<TokenOutcome>()
    next = () => gate.promise
    const together = Array.from({ length: 32 }, refresh)
    gate.resolve(rejected)
    await Promise.all(together)
    expect([calls, provider.heldBackMs()]).toEqual([32, 1_000])
  })

  it('the breaker allows one probe at a time, and other callers get a retryAfterMs of 1,000 during the probe', async () => {
    for (const delayMs of [1_000, 2_000, 4_000, 8_000]) {
      await refresh()
      clock += delayMs
    }
    const gate = Promise.withResolvers<TokenOutcome>()
    next = () => gate.promise
    const probe = refresh()
    expect(await refresh()).toMatchObject({ kind: 'client_refused', retryAfterMs: 1_000 })
    expect(calls).toBe(5)
    gate.resolve(accepted)
    await probe
    expect(provider.heldBackMs()).toBe(0)
  })

  it('the probe delay stays unchanged if a response does not show whether the client credentials are accepted', async () => {
    await refresh()
    clock += 1_000
    next = async () => unavailable
    expect(await refresh()).toEqual(unavailable)
    expect(provider.heldBackMs()).toBe(1_000)
    expect(changes).toEqual([true])
  })

  it('the probe delay starts at 1 s again if the client credentials are rejected after they were accepted', async () => {
    for (const delayMs of [1_000, 2_000, 4_000]) {
      await refresh()
      clock += delayMs
    }
    next = async () => accepted
    await refresh()
    next = async () => rejected
    expect(await refresh()).toMatchObject({ retryAfterMs: 1_000 })
    expect(changes).toEqual([true, false, true])
  })

  it('the breaker does not block refreshes if the provider rejects the client credentials in code exchanges', async () => {
    next = async () => accepted
    for (let count = 0; count < 3; count += 1)
      expect(await exchangeCode()).toMatchObject({ kind: 'client_refused' })
    expect([provider.heldBackMs(), await refresh()]).toEqual([0, accepted])
    expect(changes).toEqual([])
  })

  it('while refreshes are blocked, code exchanges are sent, but they neither count as the probe nor delay it', async () => {
    await refresh()
    clock += 1_000
    const gate = Promise.withResolvers<ExchangeOutcome>()
    exchange = () => gate.promise
    const exchanging = exchangeCode()
    next = async () => accepted
    // The probe remains due while a code exchange is in flight.
    expect(provider.heldBackMs()).toBe(0)
    expect(await refresh()).toEqual(accepted)
    gate.resolve(rejected)
    expect(await exchanging).toMatchObject({ kind: 'client_refused' })
    expect(provider.heldBackMs()).toBe(0)
    expect(changes).toEqual([true, false])
  })

  it('refreshes stay blocked after a code exchange that the provider accepted', async () => {
    await refresh()
    exchange = async () => accepted
    expect(await exchangeCode()).toEqual(accepted)
    expect(provider.heldBackMs()).toBe(1_000)
  })

  it('the breaker allows the next probe even if a probe has thrown an error', async () => {
    await refresh()
    clock += 1_000
    next = async () => Promise.reject(new Error('a defect'))
    await expect(refresh()).rejects.toThrow('a defect')
    clock += 1_000
    next = async () => accepted
    expect(await refresh()).toEqual(accepted)
  })
})
