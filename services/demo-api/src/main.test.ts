import { fileURLToPath } from 'node:url'
import {
  listeningUrl,
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import { afterEach, describe, expect, it } from 'vitest'

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url))
const KEY = 'a-service-key-that-must-not-appear-anywhere'

describe('the process of the demo API', () => {
  let started: StartedProcess

  const start = (env: Readonly<Record<string, string>>): StartedProcess =>
    (started = startProcess([MAIN], { env: { PORT: '0', ...env } }))
  afterEach(() => started.stop('SIGKILL'))

  it('the demo API reports every invalid setting in one message that shows no values, and exits with code 1', async () => {
    const { code, stderr: written } = await start({
      PORT: '7216abc',
      LOG_LEVEL: 'loud',
      COORDINATOR_URL: 'ftp://hidden/',
      SERVICE_API_KEY: 'short-one',
      ALLOWED_HOSTS: 'fine,not/fine',
    }).ended
    expect(code).toBe(1)
    expect(written).toMatch(/^DemoAPI: The settings are not usable:\n/)
    for (const name of [
      'PORT',
      'LOG_LEVEL',
      'COORDINATOR_URL',
      'SERVICE_API_KEY',
      'ALLOWED_HOSTS',
    ]) {
      expect(written).toMatch(new RegExp(`^  ${name}[.:]`, 'm'))
    }
    for (const value of ['7216abc', 'loud', 'hidden', 'short-one', 'not/fine']) {
      expect(written).not.toContain(value)
    }
  })

  it('the demo API exits with code 1 if SERVICE_API_KEY is missing', async () => {
    const { code, stderr } = await start({}).ended
    expect(code).toBe(1)
    expect(stderr).toContain('SERVICE_API_KEY: is missing')
  })

  it('the demo API listens and reports an unavailable coordinator as down, and exits with code 0 on SIGTERM', async () => {
    const url = await listeningUrl(
      start({ SERVICE_API_KEY: KEY, COORDINATOR_URL: 'http://127.0.0.1:9' }),
    )
    const live = await fetch(`${url}/health/live`)
    const ready = await fetch(`${url}/health/ready`)
    const queued = await fetch(`${url}/queue?number=66`)
    const document = (await (await fetch(`${url}/openapi.json`)).json()) as {
      info: { title: string }
    }
    const metrics = await (await fetch(`${url}/metrics`)).text()
    expect(await started.stop('SIGTERM')).toBe(0)
    const written = started.output()
    expect([live.status, ready.status, queued.status]).toEqual([200, 503, 503])
    expect(await ready.json()).toHaveProperty('dependencies.coordinator.reason')
    const { service } = JSON.parse(written.split('\n')[0] ?? '') as { service: unknown }
    expect(service).toBe('DemoAPI')
    expect(document.info.title).toBe('DemoAPI')
    expect(metrics).toContain('service="demo-api"')
    expect(queued.headers.get('Retry-After')).toMatch(/^\d+$/)
    expect(written).toContain('dependency is down')
    expect(written).not.toContain(KEY)
  })
})
