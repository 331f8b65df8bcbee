/**
 * Tests the refresh protocol on a model of three processes, a store that fails over twice, and a provider that accepts
 * each refresh token once. Every seed gives a different interleaving: the processes lose the primary during their
 * calls, and reach the next primary at different times. failover.campaign.test.ts runs single interleavings on real
 * Redis.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import { type Random, randomOf } from '@integration-host/shared/test-support/random'
import { Secret } from '@integration-host/shared/secrets/secret'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { grantOf } from '../../test-support/grants.ts'
import type { TokenOutcome } from '../provider/provider.ts'
import { credentialOf, type Grant } from './credential.ts'
import type { Lease } from './credential-store.ts'
import { noLabels } from './labels.ts'
import { createRefreshRoutine, type RefreshDeps, refreshTiming } from './refresh.ts'

const NAME = 'ACC-1'
const PROCESSES = ['a', 'b', 'c']
const SEEDS = Array.from({ length: 60 }, (_, index) => index + 1)
/**
 * The maximum delay, in milliseconds, with which a process reaches the new primary after a failover. One process
 * reaches the new primary without a delay.
 */
const MAX_LATENESS_MS = 36_000
/** The maximum difference between the clocks of the servers, in milliseconds. */
const MAX_SKEW_MS = 20_000
const TOKEN_LIFETIME_MS = 10_000
const DURATION_MS = 240_000

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const sleep = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal?.aborted === true) return resolve()
    setTimeout(resolve, ms)
    signal?.addEventListener('abort', () => resolve(), { once: true })
  })

type Store = RefreshDeps['store']

/** Writes of the store reach its replicas immediately. A lost primary executes nothing more. */
function createStore(random: Random) {
  const clocks = [0, 1, 2].map(() => random() * MAX_SKEW_MS)
  let server = 0
  let failovers = 0
  let known = { server: 0, changedAt: Number.NEGATIVE_INFINITY }
  let record: { grant: Grant; version: number } = {
    grant: grantOf(NAME, '0', { expiresAt: 0, refreshedAt: 0 }),
    version: 1,
  }
  let fence = 0
  let commitFence = 0
  let lease: { readonly fence: number; until: number } | null = null
  let intent: { version: number; fence: number; at: number; server: number } | null = null
  /** The server to which each process is connected; absent while it is not connected. */
  const connections = new Map(PROCESSES.map((name) => [name, 0]))

  const now = (): number => Date.now() + (clocks[server] ?? 0)
  const isHeld = (by: Lease): boolean =>
    lease !== null && lease.fence === by.fence && lease.until > now()
  const isCurrent = (by: Lease): boolean => fence === by.fence && record.version === by.version
  function observe(): void {
    if (known.server !== server) known = { server, changedAt: now() }
  }
  const credential = () => credentialOf(record.grant, record.version, noLabels)

  /**
   * Executes `command` for a process. The primary may be lost before the execution, or after it but before the process
   * gets the response.
   */
  async function call<T>(owner: string, command: () => T): Promise<T> {
    const before = connections.get(owner)
    const failIfLost = (): void => {
      if (before === undefined || connections.get(owner) !== before)
        throw new IntegrationError('store_unavailable', 'the primary is lost')
    }
    await sleep(random() * 20)
    failIfLost()
    const result = command()
    await sleep(random() * 20)
    failIfLost()
    return result
  }

  const storeOf = (owner: string): Store => ({
    get: () => call(owner, credential),
    acquire: (name, _, leaseMs) =>
      call(owner, () => {
        if (lease !== null && lease.until > now()) return { kind: 'busy' }
        fence += 1
        lease = { fence, until: now() + leaseMs }
        const { refreshToken, idToken, previous } = record.grant
        return {
          kind: 'acquired',
          leased: {
            lease: { name, owner, fence, version: record.version, grantId: 'one' },
            credential: credential(),
            refreshToken,
            idToken,
            previous,
            isUnused: false,
            intent:
              intent?.version === record.version
                ? { ageMs: Math.max(0, now() - intent.at), fence: intent.fence }
                : null,
          },
        }
      }),
    renew: (by, leaseMs) =>
      call(owner, () => {
        if (lease === null || !isHeld(by)) return false
        lease.until = now() + leaseMs
        return true
      }),
    release: (by) =>
      call(owner, () => {
        if (isHeld(by)) lease = null
      }),
    recordIntent: (by, deferralMs) =>
      call(owner, () => {
        if (!isHeld(by) || !isCurrent(by)) return { kind: 'lost' }
        observe()
        const left = known.changedAt + deferralMs - now()
        const isForeign = intent?.version === by.version && intent.fence !== by.fence
        if (isForeign && intent?.server !== server && left > 0)
          return { kind: 'deferred', retryAfterMs: left }
        intent = { version: by.version, fence: by.fence, at: now(), server }
        return { kind: 'recorded' }
      }),
    commit: (by, grant) =>
      call(owner, () => {
        if (record.version === by.version + 1 && commitFence === by.fence) return 'committed'
        if (record.version > by.version) return 'superseded'
        if (!isCurrent(by)) return 'fenced'
        record = { grant, version: record.version + 1 }
        commitFence = by.fence
        intent = null
        if (isHeld(by)) lease = null
        return 'committed'
      }),
    settle: (by, { keepsIntent }) =>
      call(owner, () => {
        if (!isCurrent(by)) return 'lost'
        if (!keepsIntent) intent = null
        if (isHeld(by)) lease = null
        return 'settled'
      }),
  })

  /** Replaces the primary. One process reaches the new primary immediately, and the others reach it later. */
  async function failOver(): Promise<void> {
    connections.clear()
    failovers += 1
    const failover = failovers
    await sleep(8_000)
    server = failover
    const first = PROCESSES[Math.floor(random() * PROCESSES.length)]
    for (const name of PROCESSES) {
      const lateness = name === first ? 0 : random() * MAX_LATENESS_MS
      void sleep(lateness).then(() => {
        if (failovers !== failover) return // This primary was lost as well.
        connections.set(name, failover)
        observe()
      })
    }
  }
  return { storeOf, failOver }
}

/** A provider that ends the grant when a refresh token is used a second time. */
function createProvider(random: Random) {
  let current = 0
  let isEnded = false
  let rotations = 0
  let sending = 0
  let mostSending = 0
  async function refresh(token: Secret): Promise<TokenOutcome> {
    sending += 1
    mostSending = Math.max(mostSending, sending)
    await sleep(random() * 3_000)
    isEnded ||= token.reveal() !== `refresh ${current}`
    if (!isEnded) {
      rotations += 1
      current = rotations
    }
    await sleep(random() * 3_000)
    sending -= 1
    const details = { body: '{"error":"invalid_grant"}', traceId: null }
    return isEnded
      ? { kind: 'refused', error: 'invalid_grant', status: 400, ...details }
      : {
          kind: 'granted',
          tokens: {
            accessToken: new Secret(`access ${current}`),
            refreshToken: new Secret(`refresh ${current}`),
            idToken: null,
            realm: null,
            lifetimeSeconds: TOKEN_LIFETIME_MS / 1_000,
            idleSeconds: null,
            hardSeconds: null,
          },
        }
  }
  return { refresh, outcome: () => ({ isEnded, rotations, mostSending }) }
}

/** Runs the processes through two failovers with the interleaving of `seed`. */
async function run(seed: number, failoverDeferralMs: number) {
  const random = randomOf(seed)
  const { storeOf, failOver } = createStore(random)
  const { refresh, outcome } = createProvider(random)
  const end = new AbortController()
  const routines = PROCESSES.map((owner) =>
    createRefreshRoutine({
      store: storeOf(owner),
      provider: { refresh },
      heldBackMs: () => 0,
      owner,
      refreshAheadMs: TOKEN_LIFETIME_MS / 2,
      idleLimitMs: 86_400_000,
      timing: {
        ...refreshTiming,
        failoverDeferralMs,
        pollMs: 200,
        graceMs: 0,
        rejectedGrantRetryDelaysMs: [],
      },
      concurrency: 1,
      now: Date.now,
      random,
      sleep,
      notifyOutbox: () => {},
      rescue: async () => false,
      storeChangedAt: () => null,
      report: () => {},
      reportWithoutResult: () => {},
      onError: (error) => {
        throw error
      },
    }),
  )
  const calling = routines.map(async (routine) => {
    while (!end.signal.aborted) {
      await routine.refresh(NAME, { kind: 'fresh' }, 'model').catch((error: unknown) => {
        if (!(error instanceof IntegrationError)) throw error
      })
      await sleep(500 + random() * 2_000, end.signal)
    }
  })
  const failing = (async () => {
    await sleep(20_000 + random() * 20_000)
    await failOver()
    await sleep(5_000 + random() * 80_000)
    await failOver()
  })()
  await vi.advanceTimersByTimeAsync(DURATION_MS)
  await failing
  end.abort()
  const disposed = Promise.all(routines.map((routine) => routine[Symbol.asyncDispose]()))
  await vi.advanceTimersByTimeAsync(60_000)
  await Promise.all([...calling, disposed])
  return outcome()
}

it('no interleaving uses a refresh token twice if every process reaches the new primary before deferred refreshes start', async () => {
  for (const seed of SEEDS) {
    const { isEnded, rotations, mostSending } = await run(seed, refreshTiming.failoverDeferralMs)
    expect({ seed, isEnded, mostSending }).toEqual({ seed, isEnded: false, mostSending: 1 })
    // The company was also refreshed after the second failover.
    expect(rotations).toBeGreaterThan(10)
  }
})

it('some interleavings use a refresh token twice if refreshes are not deferred after a failover', async () => {
  const outcomes = []
  for (const seed of SEEDS.slice(0, 30)) outcomes.push(await run(seed, 0))
  expect(outcomes.some(({ isEnded }) => isEnded)).toBe(true)
})
