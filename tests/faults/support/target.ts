import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'

/** A call of a step, as its target saw it. */
export interface SeenCall {
  /** `/order`, or `/v3/company/…` where the target stands for the gateway. */
  readonly path: string
  /** What was ordered; empty for a company's call. */
  readonly order: string
  readonly idempotencyKey: string
  readonly at: number
}

/** What the coordinators' steps call in place of the demo API and the gateway. */
export interface Target extends AsyncDisposable {
  readonly url: string
  readonly calls: readonly SeenCall[]
  /** For `INTERNET_PROBES`: answers while `isOnline`. */
  readonly probe: string
  isOnline: boolean
  /** How long an answer takes. */
  latencyMs: number
  /** Answers a call in its own way and returns true, or leaves it to the target. */
  intercept: ((call: SeenCall, response: ServerResponse) => boolean | Promise<boolean>) | null
}

const PROBE_PATH = '/probe'
const CREATED_AT = '2026-11-20T21:24:19.3210000+01:00'

export async function startTarget(): Promise<Target> {
  const calls: SeenCall[] = []
  const server = createServer((request, response) => {
    const { pathname: path, searchParams } = new URL(request.url ?? '/', 'http://target')
    if (path === PROBE_PATH) {
      if (target.isOnline) response.end()
      else request.socket.destroy()
      return
    }
    const order = searchParams.get('order') ?? ''
    const call: SeenCall = {
      path,
      order,
      idempotencyKey: String(request.headers['idempotency-key']),
      at: performance.now(),
    }
    calls.push(call)
    void answer(call, response)
  })
  async function answer(call: SeenCall, response: ServerResponse): Promise<void> {
    if ((await target.intercept?.(call, response)) === true) return
    if (target.latencyMs > 0) await delay(target.latencyMs)
    const body = { Order: call.order, CreatedAt: CREATED_AT }
    response.writeHead(call.path === '/order' ? 201 : 200, { 'content-type': 'application/json' })
    response.end(JSON.stringify(call.path === '/order' ? body : { ...body, Status: 'Confirmed' }))
  }
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const target: Target = {
    url,
    probe: url + PROBE_PATH,
    isOnline: true,
    calls,
    latencyMs: 0,
    intercept: null,
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
  return target
}
