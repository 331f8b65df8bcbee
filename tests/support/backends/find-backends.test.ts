import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { backendKinds } from './backend.ts'
import { findBackends } from './find-backends.ts'
import { probe } from './probes.ts'

const schemes = { postgres: 'postgresql', redis: 'redis', rabbitmq: 'amqp' } as const

let otherServer: Server
let port: number
const sockets = new Set<Socket>()

beforeEach(async () => {
  otherServer = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
  }).listen(0, '127.0.0.1')
  await once(otherServer, 'listening')
  port = (otherServer.address() as AddressInfo).port
})

afterEach(() => {
  vi.unstubAllEnvs()
  for (const socket of sockets) socket.destroy()
  otherServer.close()
})

describe('the probe of a backend server', () => {
  it('the probe of a test backend rejects a server that accepts the connection but sends nothing', async () => {
    await expectNoServer('no response within 3 s')
  })

  it('the probe of each kind of test backend rejects a web server', async () => {
    otherServer.on('connection', (socket: Socket) => {
      socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n'))
    })
    await expectNoServer(Error)
  })
})

describe('finding the backends for the tests', () => {
  it('the error for an unresponsive server in TEST_DATABASE_URL names the variable but does not contain its URL', async () => {
    const env = {
      TEST_DATABASE_URL: `postgresql://user:hush@127.0.0.1:${port}/x`,
      TEST_REDIS_URL: `redis://:hush@127.0.0.1:${port}`,
      TEST_AMQP_URL: `amqp://user:hush@127.0.0.1:${port}`,
    }
    const message = await failureOf(env)
    expect(message).toContain('TEST_DATABASE_URL is set')
    expect(message).not.toContain('hush')
  })

  it('the search for test backends does not use Docker if the docker command exists but no engine responds', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'no-engine-'))
    const script = '#!/bin/sh\necho "Cannot connect to the Docker daemon" >&2\nexit 1\n'
    writeFileSync(join(folder, 'docker'), script, { mode: 0o755 })
    vi.stubEnv('PATH', folder)
    try {
      expect(await failureOf({ TEST_BACKENDS: 'docker' })).toContain('Docker: no engine responds')
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it('the error for missing backend servers lists every remedy', async () => {
    const message = await failureOf({ TEST_BACKENDS: 'environment', TEST_REDIS_URL: 'redis://x' })
    expect(message).toContain('Not found: PostgreSQL, Redis, RabbitMQ')
    expect(message).toContain('not set: TEST_DATABASE_URL, TEST_AMQP_URL')
    for (const remedy of [
      'Docker',
      'localhost',
      'apt-get install',
      'brew install',
      'TEST_AMQP_URL',
    ]) {
      expect(message).toContain(remedy)
    }
  })

  it('the search for test backends rejects an unknown value of TEST_BACKENDS', async () => {
    expect(await failureOf({ TEST_BACKENDS: 'kubernetes' })).toContain('environment, docker, local')
  })
})

async function expectNoServer(reason: string | typeof Error): Promise<void> {
  await Promise.all(
    backendKinds.map((kind) =>
      expect(probe(kind, `${schemes[kind]}://127.0.0.1:${port}`)).rejects.toThrow(reason),
    ),
  )
}

async function failureOf(env: NodeJS.ProcessEnv): Promise<string> {
  try {
    const { stop } = await findBackends(env)
    await stop()
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
  throw new Error('backends were found')
}
