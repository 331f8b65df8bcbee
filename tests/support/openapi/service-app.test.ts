import { execFileSync } from 'node:child_process'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import { createServiceApp } from '@integration-host/shared/http/service-app'
import { expect, it } from 'vitest'
import { deviations } from './deviations.ts'

const THE_DOOR = '@integration-host/shared/http/service-app'

it('holds every app that a test makes to its document, by the name that services import', async () => {
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
    'test: GET /forgotten answered 200: no such operation is documented',
  ])
})

it('holds the services of a system too', () => {
  const hold = new URL('hold-process.ts', import.meta.url).href
  const program = `console.log(import.meta.resolve('${THE_DOOR}'))`
  const args = ['--import', hold, '--input-type=module', '--eval', program]
  const resolved = execFileSync(process.execPath, args, { encoding: 'utf8' })
  expect(resolved.trim()).toBe(new URL('service-app.ts', import.meta.url).href)
})
