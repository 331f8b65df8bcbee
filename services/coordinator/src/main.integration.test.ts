import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { until } from '@integration-host/shared/test-support/eventually'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

const main = fileURLToPath(new URL('./main.ts', import.meta.url))
let dataDir: string
beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'coordinator-'))
})
afterAll(() => rm(dataDir, { recursive: true }))

const run = (env: Readonly<Record<string, string>>) => startProcess([main], { env })

describe('the coordinator as an OS process', () => {
  const key = 'k'.repeat(40)
  const nowhere = {
    AMQP_URL: 'amqp://guest:secret-1@127.0.0.1:1',
    DATABASE_URL: 'postgresql://u:secret-2@127.0.0.1:1/none',
    SERVICE_API_KEY: key,
  }

  it('the coordinator exits with 1 after one message that names every invalid or missing setting, but none of their values', async () => {
    await using started = run({
      SERVICE_API_KEY: 'short-secret',
      AMQP_URL: 'http://user:secret-3@x',
      PORT: '7219x',
      LOCAL_PULL_SECONDS: '0',
      REMOTE_PULL_SECONDS: 'often',
      INTERNET_PROBES: 'example.com,ftp://x',
      DEMO_API_URL: 'http://user:secret-4@x/',
      PREFETCH: '0',
      AMQP_PREFIX: 'a b',
    })
    expect(await started.ended).toMatchObject({ code: 1 })
    for (const name of [
      'SERVICE_API_KEY',
      'AMQP_URL',
      'DATABASE_URL: is missing',
      'PORT',
      'LOCAL_PULL_SECONDS',
      'REMOTE_PULL_SECONDS',
      'INTERNET_PROBES',
      'DEMO_API_URL',
      'PREFETCH',
      'AMQP_PREFIX',
    ])
      expect(started.output()).toContain(name)
    expect(started.output()).not.toMatch(/secret|7219x|often|ftp/)
    expect(started.output().match(/not usable/g)).toHaveLength(1)
  })

  it('with TRANSACTION_SOURCE=memory the coordinator needs no DATABASE_URL and reports a damaged ITSourceMemory.json by its name', async () => {
    const path = join(dataDir, 'ITSourceMemory.json')
    await writeFile(path, 'damaged')
    await using started = run({
      ...nowhere,
      DATABASE_URL: '',
      TRANSACTION_SOURCE: 'memory',
      DATA_DIR: dataDir,
      PORT: '0',
    })
    expect(await started.ended).toMatchObject({ code: 1 })
    expect(started.output()).toContain(`${path} is damaged`)
    await rm(path)
  })

  it('the coordinator starts without PostgreSQL and RabbitMQ, names both in /health/ready, and exits with 0 on SIGTERM', async () => {
    const port = String(await freePort())
    await using started = run({ ...nowhere, DATA_DIR: dataDir, PORT: port })
    const url = `http://127.0.0.1:${port}`
    await until(async () => (await fetch(`${url}/health/live`).catch(() => null))?.ok === true)
    await until(async () => {
      const response = await fetch(`${url}/health/ready`)
      const { dependencies } = (await response.json()) as {
        dependencies: Record<string, { reason?: string }>
      }
      return (
        response.status === 503 &&
        dependencies['postgres']?.reason === 'ECONNREFUSED' &&
        dependencies['rabbitmq']?.reason === 'ECONNREFUSED'
      )
    })
    const queued = await fetch(`${url}/processes/OrderProcess/transactions`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: '{"TransactionID":"1","InitialData":1}',
    })
    expect([queued.status, queued.headers.get('Retry-After')]).toEqual([503, '2'])
    expect(await started.stop('SIGTERM')).toBe(0)
    expect(started.output()).not.toMatch(/secret-|kkkk/)
  })
})
