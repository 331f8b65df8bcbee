/**
 * Sends HTTP requests on keep-alive connections to a server in another process. A response other than 200 ends the
 * benchmark, so that no result includes errors.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { Pool } from 'undici'
import { quantile } from './statistics.ts'

export interface Target {
  readonly origin: string
  readonly method: 'GET' | 'POST'
  /** Returns the path of request number `n`. */
  readonly path: (n: number) => string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
  /**
   * Returns the body of request number `n`, and the headers that depend on this body. The returned body is sent instead
   * of `body`.
   */
  readonly message?: (n: number) => {
    readonly headers: Readonly<Record<string, string>>
    readonly body: string
  }
}

export interface LoadResult {
  readonly requests: number
  readonly perSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
}

/** Sends `requests` requests, each after the response to the previous request. */
export async function inTurn(target: Target, requests: number): Promise<void> {
  await using opened = new AsyncDisposableStack()
  const pool = opened.adopt(new Pool(target.origin, { connections: 1 }), (open) => open.close())
  for (let n = 0; n < requests; n += 1) await send(pool, target, n)
}

/** Sends as many requests as possible for `seconds` seconds, with `connections` requests in flight. */
export async function saturate(
  target: Target,
  { connections, seconds }: { readonly connections: number; readonly seconds: number },
): Promise<LoadResult> {
  await using opened = new AsyncDisposableStack()
  const pool = opened.adopt(new Pool(target.origin, { connections }), (open) => open.close())
  const latenciesMs: number[] = []
  const startedAt = performance.now()
  const until = startedAt + seconds * 1_000
  let n = 0
  await Promise.all(
    Array.from({ length: connections }, async () => {
      for (let sentAt = performance.now(); sentAt < until; sentAt = performance.now()) {
        await send(pool, target, n++)
        latenciesMs.push(performance.now() - sentAt)
      }
    }),
  )
  return resultOf(latenciesMs, performance.now() - startedAt)
}

/**
 * Sends `perSecond` requests a second for `seconds` seconds. Each request is sent at its scheduled time even if
 * earlier requests are still in flight. The latency is measured from the scheduled time, so a stall of the server
 * counts for every request that waited.
 */
export async function steady(
  target: Target,
  { perSecond, seconds }: { readonly perSecond: number; readonly seconds: number },
): Promise<LoadResult> {
  await using opened = new AsyncDisposableStack()
  const pool = opened.adopt(new Pool(target.origin, { connections: 64 }), (open) => open.close())
  const latenciesMs: number[] = []
  const inFlight: Promise<void>[] = []
  const startedAt = performance.now()
  const gapMs = 1_000 / perSecond
  // Failures are collected, because an unhandled rejection would end this process at once, and the servers would
  // keep running.
  const failures: unknown[] = []
  for (let n = 0; n < perSecond * seconds && failures.length === 0;) {
    const dueAt = startedAt + n * gapMs
    if (performance.now() < dueAt) {
      await delay(1)
      continue
    }
    inFlight.push(
      send(pool, target, n++).then(
        () => void latenciesMs.push(performance.now() - dueAt),
        (error: unknown) => void failures.push(error),
      ),
    )
  }
  await Promise.all(inFlight)
  if (failures.length > 0) throw failures[0]
  return resultOf(latenciesMs, performance.now() - startedAt)
}

async function send(pool: Pool, target: Target, n: number): Promise<void> {
  const { method, body = null } = target
  const message = target.message?.(n)
  const headers = { ...target.headers, ...message?.headers }
  const response = await pool.request({
    method,
    path: target.path(n),
    headers,
    body: message?.body ?? body,
  })
  const text = await response.body.text()
  if (response.statusCode !== 200) {
    throw new Error(`${method} ${target.path(n)} responded with ${response.statusCode}: ${text}`)
  }
}

const resultOf = (latenciesMs: readonly number[], elapsedMs: number): LoadResult => ({
  requests: latenciesMs.length,
  perSecond: (latenciesMs.length / elapsedMs) * 1_000,
  p50Ms: quantile(latenciesMs, 0.5),
  p99Ms: quantile(latenciesMs, 0.99),
})
