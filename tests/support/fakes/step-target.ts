import type { ServerResponse } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { startHttpServer } from './http-server.ts'

/** A call that a step made, as received by the step target. */
export interface ReceivedCall {
  /** The path `/order` or `/report`. If the target replaces the gateway, also a path `/v3/company/…`. */
  readonly path: string
  /** The order id; empty in a call to a company's API. */
  readonly order: string
  readonly idempotencyKey: string
  readonly at: number
}

/** A fake of the demo API and of the gateway. The steps of the coordinators call this server. */
export interface StepTarget extends AsyncDisposable {
  readonly url: string
  readonly calls: readonly ReceivedCall[]
  /** A URL for the setting `INTERNET_PROBES`. The target responds to it only while `isOnline` is true. */
  readonly probe: string
  isOnline: boolean
  /** Delay of each response in milliseconds. */
  latencyMs: number
  /**
   * Handles a call in place of the target. Returns true if this function has responded to the call, and false if the
   * target has to respond.
   */
  intercept: ((call: ReceivedCall, response: ServerResponse) => boolean | Promise<boolean>) | null
}

const PROBE_PATH = '/probe'
const CREATED_AT = '2026-11-20T21:24:19.3210000+01:00'

export async function startStepTarget(): Promise<StepTarget> {
  const calls: ReceivedCall[] = []
  const server = await startHttpServer(async (request, response) => {
    const { pathname: path, searchParams } = new URL(request.url ?? '/', 'http://target')
    if (path === PROBE_PATH) {
      if (target.isOnline) response.end()
      else request.socket.destroy()
      return
    }
    const order = searchParams.get('order') ?? ''
    const call: ReceivedCall = {
      path,
      order,
      idempotencyKey: String(request.headers['idempotency-key']),
      at: performance.now(),
    }
    calls.push(call)
    await respond(call, response)
  })
  async function respond(call: ReceivedCall, response: ServerResponse): Promise<void> {
    if ((await target.intercept?.(call, response)) === true) return
    if (target.latencyMs > 0) await delay(target.latencyMs)
    const body = { Order: call.order, CreatedAt: CREATED_AT }
    response.writeHead(call.path === '/order' ? 201 : 200, { 'content-type': 'application/json' })
    response.end(JSON.stringify(call.path === '/order' ? body : { ...body, Status: 'Confirmed' }))
  }
  const target: StepTarget = {
    url: server.url,
    probe: server.url + PROBE_PATH,
    isOnline: true,
    calls,
    latencyMs: 0,
    intercept: null,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
  return target
}
