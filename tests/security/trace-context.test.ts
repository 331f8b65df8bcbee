/**
 * Tests which requests continue the trace that is named in their `traceparent` header. A collector receives the
 * spans of real service processes.
 */
import { randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { companyInfoUrl, connectCompany } from '../support/clients/user-actions.ts'
import { startHttpServer } from '../support/fakes/http-server.ts'
import { startTraceCollector, type TraceCollector } from '../support/fakes/trace-collector.ts'
import { startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'

const opened = new AsyncDisposableStack()
/** Headers of the requests to the accounting API. */
const received: IncomingHttpHeaders[] = []
let collector: TraceCollector
let system: System
beforeAll(async () => {
  collector = opened.use(await startTraceCollector())
  const accounting = opened.use(
    await startHttpServer((request, response) => {
      received.push(request.headers)
      response.end('{}')
    }),
  )
  system = opened.use(await startSystem(['sandbox-provider']))
  // With this sampler a span is exported only if its parent is sampled. An exported span therefore shows that the
  // service has accepted the parent in the header.
  const sampled = { ...collector.env, OTEL_TRACES_SAMPLER: 'parentbased_always_off' }
  system.start('token-service', sampled)
  system.start('accounting-gateway', { ...sampled, ACCOUNTING_URL: accounting.url })
  system.start('coordinator', sampled)
  system.start('demo-api', sampled)
  await system.ready('token-service', 'accounting-gateway', 'coordinator', 'demo-api')
  await connectCompany(system, REALM)
})
afterAll(() => opened.disposeAsync())

function sampledTrace() {
  const traceId = randomBytes(16).toString('hex')
  const traceparent = `00-${traceId}-${randomBytes(8).toString('hex')}-01`
  return { traceId, headers: { traceparent, tracestate: 'vendor=canary' } }
}

const namesOf = (traceId: string): string[] =>
  collector.spans.filter((span) => span.traceId === traceId).map(({ name }) => name)

it('a request with a service key continues the trace of its traceparent', async () => {
  const { traceId, headers } = sampledTrace()
  await system.call(`${system.url('token-service')}/credentials/ACC-${REALM}`, { headers })
  await eventually(() => expect(namesOf(traceId)).toContain('GET /credentials/:name'))
})

it.each([
  ['token-service', '/authorize'],
  ['token-service', '/callback?code=made-up&state=made-up'],
  ['token-service', `/credentials/ACC-${REALM}`],
  ['token-service', '/nowhere'],
  ['coordinator', '/nowhere'],
  ['accounting-gateway', `/v3/company/${REALM}/companyinfo/1`],
  ['demo-api', '/queue'],
] as const)('a request to %s %s without a key does not continue a trace', async (name, path) => {
  const stranger = sampledTrace()
  const caller = sampledTrace()
  const response = await fetch(system.url(name) + path, {
    headers: stranger.headers,
    redirect: 'manual',
  })
  await response.body?.cancel()
  // The same process exports the span of this later request. A span of the request without a key would have been
  // exported before.
  const url = name === 'demo-api' ? '/order?order=1' : '/nowhere'
  await system.call(system.url(name) + url, { headers: caller.headers })
  await eventually(() => expect(namesOf(caller.traceId)).not.toEqual([]))
  expect(namesOf(stranger.traceId)).toEqual([])
})

it('the accounting API receives the traceparent of the gateway and no tracestate', async () => {
  const { traceId, headers } = sampledTrace()
  const response = await system.call(companyInfoUrl(system, REALM), { headers })
  expect(response.status).toBe(200)
  await response.body?.cancel()
  const last = received.at(-1)
  expect(last?.['traceparent']).toMatch(new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`))
  expect(last?.['traceparent']).not.toBe(headers.traceparent)
  expect(last).not.toHaveProperty('tracestate')
})
