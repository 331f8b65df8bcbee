/** Tests of the refresh protocol on a fake store and with fake timers. refresh.integration.test.ts uses real Redis. */
import { IntegrationError } from '@integration-host/shared/errors'
import { Secret } from '@integration-host/shared/secrets/secret'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { grantOf } from '../../test-support/grants.ts'
import type { TokenOutcome } from '../provider/provider.ts'
import { credentialOf } from './credential.ts'
import { noLabels } from './labels.ts'
import {
  createRefreshRoutine,
  type RefreshDeps,
  type RefreshReport,
  refreshTiming,
  type CallWithoutResult,
} from './refresh.ts'

const NAME = 'ACC-1'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

type RefreshStore = RefreshDeps['store']

/** Returns a fake store with one expired credential. `commit` overrides the method `commit` of the store. */
function storeOf(commit: () => Promise<'committed'>): RefreshStore {
  const grant = grantOf(NAME, 'one', { expiresAt: 1, refreshedAt: 0 })
  const credential = credentialOf(grant, 1, noLabels)
  const lease = { name: NAME, owner: 'test', fence: 1, version: 1, grantId: 'grant one' }
  const { refreshToken, idToken, previous } = grant
  return {
    get: async () => credential,
    acquire: async () => ({
      kind: 'acquired',
      leased: { lease, credential, refreshToken, idToken, previous, isUnused: false, intent: null },
    }),
    renew: async () => true,
    release: async () => {},
    recordIntent: async () => ({ kind: 'recorded' }),
    commit,
    settle: async () => 'settled',
  }
}

const granted: TokenOutcome = {
  kind: 'granted',
  tokens: {
    accessToken: new Secret('access two'),
    refreshToken: new Secret('refresh two'),
    idToken: null,
    realm: null,
    lifetimeSeconds: 3_600,
    idleSeconds: null,
    hardSeconds: null,
  },
}

function startRoutine(store: RefreshStore, overrides: Partial<RefreshDeps> = {}) {
  const reports: RefreshReport[] = []
  const withoutResult: CallWithoutResult[] = []
  const routine = createRefreshRoutine({
    store,
    provider: { refresh: async () => granted },
    heldBackMs: () => 0,
    owner: 'test',
    refreshAheadMs: 600_000,
    idleLimitMs: 86_400_000,
    timing: { ...refreshTiming, graceMs: 0, rejectedGrantRetryDelaysMs: [] },
    concurrency: 1,
    now: Date.now,
    random: () => 0,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        setTimeout(resolve, ms)
        signal?.addEventListener('abort', () => resolve())
      }),
    notifyOutbox: () => {},
    rescue: async () => false,
    storeChangedAt: () => null,
    report: (report) => void reports.push(report),
    reportWithoutResult: (call) => void withoutResult.push(call),
    onError: (error) => {
      throw error
    },
    ...overrides,
  })
  return { routine, reports, withoutResult }
}

const unavailable = async (): Promise<never> => {
  throw new IntegrationError('store_unavailable', 'no store')
}

it('a token request without a response is reported immediately, because the lost response may contain a rotated token pair', async () => {
  const lost: TokenOutcome = {
    kind: 'unknown',
    status: null,
    body: 'no response (deadline)',
    traceId: null,
  }
  const refused: TokenOutcome = { ...lost, kind: 'refused', status: 400, error: 'invalid_grant' }
  const outcomes = [lost, refused]
  const { routine, reports, withoutResult } = startRoutine(
    storeOf(async () => 'committed'),
    { provider: { refresh: async () => outcomes.shift() ?? granted } },
  )
  const refreshing = routine.refresh(NAME, { kind: 'fresh' }, 'routine')
  await vi.advanceTimersByTimeAsync(refreshTiming.ambiguousRetryDelayMs)
  await refreshing
  const { kind: _, ...response } = lost
  expect(withoutResult).toEqual([{ name: NAME, wasSent: true, ...response }])
  expect(reports).toMatchObject([{ calls: 2 }])
})

it('if the store lost the pair whose refresh token is rejected, the older pair that it has is refreshed under a new lease', async () => {
  const store = storeOf(async () => 'committed')
  const released: number[] = []
  const leased = await store.acquire(NAME, 'test', refreshTiming.leaseMs)
  if (leased.kind !== 'acquired') throw new Error('the fake store always grants the lease')
  const { lease, credential } = leased.leased
  // The first lease is of version 2. Then the store fails over, and has version 1 only.
  const ahead = { ...leased.leased, lease: { ...lease, version: 2, fence: 1 } }
  const acquired = [ahead, { ...leased.leased, lease: { ...lease, fence: 2 } }]
  const refused = { status: 400, body: '', traceId: null, error: 'invalid_grant' }
  const outcomes: TokenOutcome[] = [{ kind: 'refused', ...refused }]
  const { routine, reports } = startRoutine(
    {
      ...store,
      get: async () => credential,
      acquire: async () => ({ kind: 'acquired', leased: acquired.shift() ?? leased.leased }),
      release: async ({ fence }) => void released.push(fence),
    },
    { provider: { refresh: async () => outcomes.shift() ?? granted } },
  )
  const refreshing = routine.refresh(NAME, { kind: 'fresh' }, 'routine')
  await vi.advanceTimersByTimeAsync(refreshTiming.leaseMs)
  expect(await refreshing).toMatchObject({ kind: 'refreshed', credential: { version: 2 } })
  expect(released).toEqual([1])
  expect(reports).toMatchObject([{ outcome: 'refreshed' }])
})

it.each([
  ['a stored pair wakes the relay of the outbox', 'committed', 1],
  ['a superseded pair has no event, so it does not', 'superseded', 0],
] as const)('%s', async (_, stored, wakes) => {
  const store = storeOf(async () => 'committed')
  let woken = 0
  const { routine } = startRoutine(
    { ...store, commit: async () => stored },
    { notifyOutbox: () => void (woken += 1) },
  )
  await routine.refresh(NAME, { kind: 'fresh' }, 'routine')
  expect(woken).toBe(wakes)
})

describe('the refresh intent of an earlier lease (I5 of refresh.ts)', () => {
  it.each([
    [90_000, 2_000],
    [700, 700],
  ])(
    'a refresh that the store defers for %i ms sends no token, releases its lease, and may be repeated after %i ms',
    async (storeDefersMs, retryAfterMs) => {
      const store = storeOf(async () => 'committed')
      const release = vi.spyOn(store, 'release')
      const recordIntent = vi
        .spyOn(store, 'recordIntent')
        .mockResolvedValueOnce({ kind: 'deferred', retryAfterMs: storeDefersMs })
      const refreshToken = vi.fn<RefreshDeps['provider']['refresh']>(async () => granted)
      const { routine } = startRoutine(store, { provider: { refresh: refreshToken } })
      const result = await routine.refresh(NAME, { kind: 'fresh' }, 'routine')
      expect(result).toMatchObject({ kind: 'deferred', retryAfterMs, credential: { name: NAME } })
      expect(recordIntent).toHaveBeenCalledWith(expect.anything(), 40_000)
      expect(release).toHaveBeenCalledTimes(1)
      expect(refreshToken).not.toHaveBeenCalled()
      await routine.refresh(NAME, { kind: 'fresh' }, 'routine')
      expect(refreshToken).toHaveBeenCalledTimes(1)
    },
  )

  it.each([
    ['grows', (waitedMs: number) => waitedMs],
    ['stays 0, because the clock of the store was set back', () => 0],
  ])(
    "if the age of another process's intent %s, a refresh waits 12 s without the lease before it sends the refresh token",
    async (_, ageAfter) => {
      const free = storeOf(async () => 'committed')
      const startedAt = performance.now()
      let isHeld = false
      const store: RefreshStore = {
        ...free,
        async acquire(...args) {
          const acquired = await free.acquire(...args)
          if (acquired.kind !== 'acquired') return acquired
          isHeld = true
          const intent = { ageMs: ageAfter(performance.now() - startedAt), fence: 7 }
          return { ...acquired, leased: { ...acquired.leased, intent } }
        },
        async release() {
          isHeld = false
        },
      }
      const refreshToken = vi.fn<RefreshDeps['provider']['refresh']>(async () => granted)
      const { routine } = startRoutine(store, { provider: { refresh: refreshToken } })
      const refreshing = routine.refresh(NAME, { kind: 'fresh' }, 'routine')
      await vi.advanceTimersByTimeAsync(refreshTiming.intentMaxAgeMs - 1)
      expect([isHeld, refreshToken.mock.calls.length]).toEqual([false, 0])
      await vi.advanceTimersByTimeAsync(1)
      expect([isHeld, refreshToken.mock.calls.length]).toEqual([true, 1])
      expect((await refreshing).kind).toBe('refreshed')
    },
  )
})

describe('shutdown with a rotated token pair that is not stored (I6 of refresh.ts)', () => {
  it('a refresh ends as rotation_dropped if the store is unavailable until the commit deadline of the shutdown', async () => {
    const { routine, reports } = startRoutine(storeOf(unavailable))
    const refreshed = await routine.refresh(NAME, { kind: 'fresh' }, 'routine')
    expect(refreshed.kind).toBe('refreshed')
    const disposed = routine[Symbol.asyncDispose]()
    await vi.advanceTimersByTimeAsync(10_000)
    await disposed
    expect(reports).toEqual([{ name: NAME, outcome: 'rotation_dropped', calls: 1, traceId: null }])
  })

  it('a token pair that is not stored by the commit deadline of the shutdown is written to a file (rotation_rescued)', async () => {
    const rescued: string[] = []
    const { routine, reports } = startRoutine(storeOf(unavailable), {
      rescue: async ({ name, version, grantId, grant }) => {
        rescued.push(`${name} ${version} of ${grantId}: ${grant.refreshToken?.reveal()}`)
        return true
      },
    })
    await routine.refresh(NAME, { kind: 'fresh' }, 'routine')
    const disposed = routine[Symbol.asyncDispose]()
    await vi.advanceTimersByTimeAsync(10_000)
    await disposed
    expect(rescued).toEqual([`${NAME} 2 of grant one: refresh two`])
    expect(reports).toMatchObject([{ name: NAME, outcome: 'rotation_rescued' }])
  })

  it('the token pair is committed at shutdown if the store becomes available before the commit deadline', async () => {
    let isAvailable = false
    const { routine, reports } = startRoutine(
      storeOf(async () => (isAvailable ? 'committed' : unavailable())),
    )
    await routine.refresh(NAME, { kind: 'fresh' }, 'routine')
    const disposed = routine[Symbol.asyncDispose]()
    isAvailable = true
    await vi.advanceTimersByTimeAsync(2_000)
    await disposed
    expect(reports).toMatchObject([{ name: NAME, outcome: 'refreshed' }])
  })
})

describe('a provider that rejects the client credentials', () => {
  const rejected: TokenOutcome = {
    kind: 'client_refused',
    retryAfterMs: 1_000,
    status: 401,
    body: '{"error":"invalid_client"}',
    traceId: null,
  }

  it('a refresh acquires no lease and is deferred while calls to the provider are blocked', async () => {
    const store = storeOf(async () => 'committed')
    const writes = (['acquire', 'recordIntent', 'settle'] as const).map((name) =>
      vi.spyOn(store, name),
    )
    let heldBackMs = 700
    const { routine } = startRoutine(store, { heldBackMs: () => heldBackMs })
    const goal = { kind: 'newer', version: 1, force: true } as const
    expect(await routine.refresh(NAME, goal, 'routine')).toMatchObject({
      kind: 'deferred',
      retryAfterMs: 700,
    })
    for (const write of writes) expect(write).not.toHaveBeenCalled()
    heldBackMs = 0
    expect(await routine.refresh(NAME, goal, 'routine')).toMatchObject({ kind: 'refreshed' })
  })

  it('after the provider has rejected the client credentials, a refresh is due again exactly at the next probe', async () => {
    const store = storeOf(async () => 'committed')
    const settle = vi.spyOn(store, 'settle')
    const { routine } = startRoutine(store, {
      provider: { refresh: async () => rejected },
      random: () => 0.999,
    })
    const result = await routine.refresh(NAME, { kind: 'fresh' }, 'routine')
    expect(result).toMatchObject({ kind: 'deferred', retryAfterMs: 1_000 })
    expect(settle.mock.calls.map(([, settlement]) => settlement)).toMatchObject([
      { nextTryAt: Date.now() + 1_000, fault: null, attempts: 0 },
    ])
  })
})
