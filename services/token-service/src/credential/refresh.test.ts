/** The refresh protocol on a fake store and with fake timers. refresh.integration.test.ts runs it on real Redis. */
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
  type UnansweredCall,
} from './refresh.ts'

const NAME = 'ACC-1'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

type RefreshStore = RefreshDeps['store']

/** Returns a fake store with one expired credential. `commit` replaces the method `commit` of the store. */
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
    recordIntent: async () => 'recorded',
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
  const unanswered: UnansweredCall[] = []
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
        signal.addEventListener('abort', () => resolve())
      }),
    notifyOutbox: () => {},
    rescue: async () => false,
    storeChangedAt: () => null,
    report: (report) => void reports.push(report),
    reportUnanswered: (call) => void unanswered.push(call),
    onError: (error) => {
      throw error
    },
    ...overrides,
  })
  return { routine, reports, unanswered }
}

const unavailable = async (): Promise<never> => {
  throw new IntegrationError('store_unavailable', 'no store')
}

it('a token request without a response is reported at once, because a rotated pair may be lost with its response', async () => {
  const lost: TokenOutcome = {
    kind: 'unknown',
    status: null,
    body: 'no response (deadline)',
    traceId: null,
  }
  const refused: TokenOutcome = { ...lost, kind: 'refused', status: 400, error: 'invalid_grant' }
  const outcomes = [lost, refused]
  const { routine, reports, unanswered } = startRoutine(
    storeOf(async () => 'committed'),
    { provider: { refresh: async () => outcomes.shift() ?? granted } },
  )
  const refreshing = routine.refresh(NAME, { kind: 'fresh' }, 'routine')
  await vi.advanceTimersByTimeAsync(refreshTiming.ambiguousRetryDelayMs)
  await refreshing
  const { kind: _, ...response } = lost
  expect(unanswered).toEqual([{ name: NAME, wasSent: true, ...response }])
  expect(reports).toMatchObject([{ calls: 2 }])
})

describe('shutdown with a rotated token pair that is not stored (I6)', () => {
  it('a refresh ends as rotation_dropped if the store is unavailable until the commit deadline of the shutdown', async () => {
    const { routine, reports } = startRoutine(storeOf(unavailable))
    const refreshed = await routine.refresh(NAME, { kind: 'fresh' }, 'routine')
    expect(refreshed.kind).toBe('refreshed')
    const disposed = routine[Symbol.asyncDispose]()
    await vi.advanceTimersByTimeAsync(10_000)
    await disposed
    expect(reports).toEqual([{ name: NAME, outcome: 'rotation_dropped', calls: 1, traceId: null }])
  })

  it('a token pair that is not stored by the commit deadline of the shutdown is rescued, and rotation_rescued is reported', async () => {
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

  it('a refresh is deferred without acquiring a lease while calls to the provider are blocked', async () => {
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

  it('after rejected client credentials, a credential is due exactly at the next probe of the client credentials', async () => {
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
