import { once } from 'node:events'
import { setImmediate as turn } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { afterEach, describe, expect, it } from 'vitest'
import { NoResponse, sendRequest } from './send-request.ts'

/** A server in a separate thread, so that it responds while this thread is blocked. */
const SERVER = `
  const { createServer } = require('node:http')
  const { parentPort, workerData } = require('node:worker_threads')
  const received = new Int32Array(workerData.received)
  const server = createServer((request, response) => {
    Atomics.store(received, 0, 1)
    if (request.url === '/late') return
    setTimeout(() => response.end('{"refresh_token":"new"}'), 50)
  })
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))
`
const DEADLINE_MS = 300

let server: Worker
afterEach(() => server.terminate())

/**
 * Sends a request and blocks this thread. The thread is blocked from the arrival of the request at the server until
 * after the deadline.
 */
async function requestWhileSuspended(path: string) {
  const received = new Int32Array(new SharedArrayBuffer(4))
  server = new Worker(SERVER, { eval: true, workerData: { received: received.buffer } })
  const [port] = (await once(server, 'message')) as [number]
  const response = sendRequest(new URL(`http://127.0.0.1:${port}${path}`), {
    method: 'POST',
    headers: {},
    body: 'grant_type=refresh_token',
    deadlineMs: DEADLINE_MS,
  })
  while (Atomics.load(received, 0) === 0) await turn()
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * DEADLINE_MS)
  return response
}

describe('a request to the provider while the process is suspended until after the deadline', () => {
  it('a request returns a response that arrived while the process was suspended, although the deadline has passed', async () => {
    expect(await requestWhileSuspended('/token')).toMatchObject({
      status: 200,
      text: '{"refresh_token":"new"}',
    })
  })

  it('a request fails with an unknown outcome if no response arrived while the process was suspended', async () => {
    const failure = await requestWhileSuspended('/late').catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(NoResponse)
    expect(failure).toMatchObject({ wasSent: true, reason: 'deadline' })
  })
})
