import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { backendKinds } from './backend.ts'
import { findBackends } from './backends.ts'
import { probe } from './probes.ts'

const schemes = { postgres: 'postgresql', redis: 'redis', rabbitmq: 'amqp' } as const

let impostor: Server
let port: number
const sockets = new Set<Socket>()

beforeEach(async () => {
  impostor = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
  }).listen(0, '127.0.0.1')
  await once(impostor, 'listening')
  port = (impostor.address() as AddressInfo).port
})

afterEach(() => {
  vi.unstubAllEnvs()
  for (const socket of sockets) socket.destroy()
  impostor.close()
})

describe('probing a server', () => {
  it('does not take an open port for a server when nobody speaks', async () => {
    await expectNoServer('no answer within 3 s')
  })

  it('does not take a web server for any of them', async () => {
    impostor.on('connection', (socket: Socket) => {
      socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n'))
    })
    await expectNoServer(Error)
  })
})

describe('finding the backends', () => {
  it('takes variables that are all set at their word: a silent server is an error, told without its URL', async () => {
    const env = {
      TEST_DATABASE_URL: `postgresql://user:hush@127.0.0.1:${port}/x`,
      TEST_REDIS_URL: `redis://:hush@127.0.0.1:${port}`,
      TEST_AMQP_URL: `amqp://user:hush@127.0.0.1:${port}`,
    }
    const message = await failureOf(env)
    expect(message).toContain('TEST_DATABASE_URL is set')
    expect(message).not.toContain('hush')
  })

  it('does not take a docker command for an engine', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'no-engine-'))
    const script = '#!/bin/sh\necho "Cannot connect to the Docker daemon" >&2\nexit 1\n'
    writeFileSync(join(folder, 'docker'), script, { mode: 0o755 })
    vi.stubEnv('PATH', folder)
    try {
      expect(await failureOf({ TEST_BACKENDS: 'docker' })).toContain('Docker: no engine answers')
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it('tells all that can be done when there is nothing', async () => {
    const message = await failureOf({ TEST_BACKENDS: 'environment', TEST_REDIS_URL: 'redis://x' })
    expect(message).toContain('Not found: PostgreSQL, Redis, RabbitMQ')
    expect(message).toContain('not set: TEST_DATABASE_URL, TEST_AMQP_URL')
    for (const way of ['Docker', 'localhost', 'apt-get install', 'brew install', 'TEST_AMQP_URL']) {
      expect(message).toContain(way)
    }
  })

  it('refuses a level that there is not', async () => {
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
