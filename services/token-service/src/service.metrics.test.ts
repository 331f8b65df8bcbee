import type { MetricsSummary } from '@integration-host/shared/contracts/metrics-summary'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { IntegrationError } from '@integration-host/shared/errors'
import { createLogger } from '@integration-host/shared/observability/logger'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { auditContextOf, grantOf } from '../test-support/grants.ts'
import { type ScriptedProvider, startScriptedProvider } from '../test-support/scripted-provider.ts'
import { openTestFile, startTestService, testKeys } from '../test-support/service-fixture.ts'
import type { CredentialStore } from './credential/credential-store.ts'

const HOUR_MS = 3_600_000

let opened: AsyncDisposableStack
let provider: ScriptedProvider
let store: CredentialStore
let keys: ReturnType<typeof testKeys>
beforeEach(async () => {
  opened = new AsyncDisposableStack()
  keys = testKeys()
  provider = opened.use(await startScriptedProvider())
  const file = await openTestFile(keys)
  opened.defer(() => file.remove())
  store = file.store
})
afterEach(() => opened.disposeAsync())

const start = async (env: Record<string, string> = {}) =>
  opened.use(await startTestService({ provider, store, keys, env }))
const metrics = async ({ url }: { readonly url: string }): Promise<string> =>
  (await fetch(`${url}/metrics`)).text()
const refuse = (error: string) => ({ status: 400, body: JSON.stringify({ error }) })

describe('the metrics of token-service', () => {
  it('the refresh metric counts a failed refresh by the class of its fault, without a label for the realm', async () => {
    const service = await start()
    await service.connect('4620816365291')
    provider.script(refuse('invalid_grant'))
    await service.ask('/credentials/ACC-4620816365291/refresh', { method: 'POST' })
    const text = await metrics(service)
    expect(text).toContain(
      'credential_refreshes_total{outcome="failed",class="used_elsewhere",service="token-service"} 1',
    )
    expect(text).not.toContain('4620816365291')
  })

  it('the refresh metric has the label realm if METRICS_BY_REALM is on', async () => {
    const service = await start({ METRICS_BY_REALM: 'on' })
    await service.connect('1')
    await service.ask('/credentials/ACC-1/refresh', { method: 'POST' })
    expect(await metrics(service)).toContain(
      'credential_refreshes_total{outcome="refreshed",class="",realm="1",service="token-service"} 1',
    )
  })

  it('the metrics show the seconds until the next access token expires', async () => {
    for (const hours of [2, 1, 3]) {
      const expiresAt = Date.now() + hours * HOUR_MS
      const grant = grantOf(`ACC-${hours}`, 'one', { expiresAt, refreshedAt: Date.now() })
      await store.put(grant, expiresAt - 600_000, auditContextOf('granted'))
    }
    const service = await start()
    await eventually(async () => {
      const [, left] =
        /^credential_nearest_expiry_seconds\{[^}]*\} (\S+)$/m.exec(await metrics(service)) ?? []
      expect(Number(left)).toBeGreaterThan(3_500)
      expect(Number(left)).toBeLessThanOrEqual(3_600)
    })
    const { TokenService } = (await (
      await fetch(`${service.url}/metrics/summary`)
    ).json()) as MetricsSummary
    expect(TokenService?.ClientRejected).toBe(false)
    expect(TokenService?.NearestExpirySeconds).toBeGreaterThan(3_500)
  })

  it('a metric counts a rotated token pair that is lost at shutdown, and the log names its company', async () => {
    const lines: string[] = []
    const logger = createLogger('token-service', 'info', { write: (line) => lines.push(line) })
    const registered = createMetrics('token-service')
    const commit = async (): Promise<never> => {
      throw new IntegrationError('store_unavailable', 'no store')
    }
    const service = opened.use(
      await startTestService({
        provider,
        store: { ...store, commit },
        keys,
        logger,
        metrics: registered,
      }),
    )
    await service.connect('1')
    await service.ask('/credentials/ACC-1/refresh', { method: 'POST' })
    expect(await metrics(service)).toContain(
      'credential_rotations_uncommitted{service="token-service"} 1',
    )
    await service[Symbol.asyncDispose]()
    expect(await registered.read()).toContain(
      'credential_refreshes_total{outcome="rotation_dropped",class="",service="token-service"} 1',
    )
    const [line = ''] = lines.filter((text) => text.includes('rotation_dropped'))
    expect(JSON.parse(line)).toMatchObject({
      level: 'error',
      name: 'ACC-1',
      remedy: expect.stringContaining('Reconnect ACC-1'),
    })
  })
})
