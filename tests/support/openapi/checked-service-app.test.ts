import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import { createServiceApp } from '@integration-host/shared/http/service-app'
import { expect, it } from 'vitest'
import { runProcess } from '@integration-host/shared/test-support/start-process'
import { deviations } from './deviations.ts'

const SERVICE_APP = '@integration-host/shared/http/service-app'

it('every app that a test creates is checked against its OpenAPI document', async () => {
  const logger = createLogger('test', 'silent')
  const health = createHealth(logger)
  const metrics = createMetrics('test')
  const app = createServiceApp(
    { name: 'test', purpose: 'for tests', logger, health, metrics, keys: null },
    (routes) => routes.get('/forgotten', (c) => c.text('here')),
  )
  expect((await app.request('/health/live')).status).toBe(200)
  expect(await (await app.request('/forgotten')).text()).toBe('here')
  expect(deviations.splice(0)).toEqual([
    'test: GET /forgotten is served, not documented',
    'test: GET /forgotten responded 200: no such operation is documented',
  ])
})

it('every response of a service process is checked against its OpenAPI document', async () => {
  const hook = new URL('check-service-process.ts', import.meta.url).href
  const program = `console.log(import.meta.resolve('${SERVICE_APP}'))`
  const { stdout } = await runProcess(
    ['--import', hook, '--input-type=module', '--eval', program],
    { cwd: import.meta.dirname },
  )
  expect(stdout.trim()).toBe(new URL('checked-service-app.ts', import.meta.url).href)
})
