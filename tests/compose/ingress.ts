/**
 * Steps of `npm run test:compose` that check what docs/adr/0016-haproxy-as-ingress.md promises: load balancing,
 * retries and transparency.
 */
import { once } from 'node:events'
import { Agent, get, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import type { Installation } from '../../host/src/story.ts'
import { expect, until } from './check.ts'
import { type Stack, words } from './stack.ts'

/**
 * Matches the line of HAProxy's log for a request that was retried at another replica and completed within a
 * second.
 */
const REFUSED_ONCE = /coordinator\/\S+ GET 401 .*\/\d{1,3} ms \+\d retries/

/**
 * Checks that the requests of one keep-alive connection reach every replica. This shows that HAProxy balances requests
 * rather than connections.
 */
export async function balancesRequests(stack: Stack): Promise<void> {
  const used = await replicasUsed(stack, 12)
  expect(used.size === 3, `12 requests on one connection reached ${used.size} of 3 coordinators`)
}

/**
 * Checks that a fourth coordinator receives requests without a reload of HAProxy, and that no request fails after
 * this coordinator was removed.
 */
export async function followsReplicas(stack: Stack): Promise<void> {
  await scale(stack, 4)
  await until(
    'the new replica gets requests',
    async () => (await replicasUsed(stack, 16)).size === 4,
  )
  await scale(stack, 3)
  const used = await replicasUsed(stack, 12)
  expect(used.size === 3, `${used.size} of 3 coordinators got requests after scaling down`)
}

/**
 * While requests are sent, adds a container with the network name `coordinator`. No port of this container is open,
 * so it rejects every connection. Each request must succeed, and HAProxy's log must show a request that was retried
 * at another replica.
 *
 * @returns the log line of the retried request
 */
export async function retriesRefusedConnections(stack: Stack): Promise<string> {
  const enough = new AbortController()
  const requests = request401s(stack, () => !enough.signal.aborted)
  const isSeen = async (): Promise<string> => {
    const log = await stack.compose(['logs', '--no-color', '--no-log-prefix', 'ingress'])
    // In HAProxy's log, `+` marks a request that was sent to another replica. A request that took longer than 1 s is
    // ignored, because its first connection attempt timed out at a removed container. This test is only about
    // connections that are refused at once.
    return REFUSED_ONCE.exec(log)?.[0] ?? ''
  }
  try {
    let line = ''
    const isRetried = async (): Promise<boolean> => {
      // HAProxy's health check finds within two seconds that the new container accepts no connections. If HAProxy has
      // sent no request to the container before that, the loop starts another container.
      await stack.docker(
        words(`run --detach --rm --init --name ${stack.outsider} --network ${stack.project}_edge
          --network-alias coordinator integration-host:${stack.project} sleep infinity`),
      )
      await Promise.race([delay(3_000), requests])
      await stack.docker(['rm', '--force', stack.outsider])
      line = await isSeen()
      return line !== ''
    }
    await Promise.race([
      until('a request is tried at another replica', isRetried, 180),
      requests, // settles early only if a request fails
    ])
    return line
  } finally {
    enough.abort()
    await requests
  }
}

/**
 * Checks that the ingress responds 503 while a service has no replica, and that the service responds again after it
 * was restarted.
 */
export async function respondsWithoutReplica(stack: Stack): Promise<void> {
  const status = async () => (await fetch(`${stack.at('DEMO_API_PORT')}/health/live`)).status
  await stack.compose(['stop', 'demo-api'])
  await until('503 without a replica', async () => (await status()) === 503)
  await stack.compose(words('up --wait --no-deps demo-api'))
  await until('200 with a replica', async () => (await status()) === 200)
}

/**
 * Checks that the ingress passes on the services' own responses to large request heads, uploads and invalid
 * request targets.
 */
export async function passesLimitsOn(at: Installation): Promise<void> {
  const { port } = new URL(at.accountingGateway)
  const company = 'POST /v3/company/1/upload HTTP/1.1\r\nHost: localhost\r\n'
  const cases: readonly (readonly [what: string, bytes: string, status: number])[] = [
    [
      'a head of 15 KiB',
      `${company}X-Long: ${'x'.repeat(15_000)}\r\nContent-Length: 0\r\n\r\n`,
      401,
    ],
    [
      'a head of 20 KiB',
      `${company}X-Long: ${'x'.repeat(20_000)}\r\nContent-Length: 0\r\n\r\n`,
      431,
    ],
    // The body of this request is never complete. A response shows that the ingress forwards a request before it has
    // received the whole body.
    ['an upload that is not complete', `${company}Content-Length: 1000000\r\n\r\nbegin`, 401],
    [
      'a body that waits for 100 Continue',
      'POST /health/live HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n',
      100,
    ],
    ['CONNECT', 'CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n', 400],
    ['TRACE', 'TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n', 400],
    [
      'a target with dot segments',
      'GET /v3/company/1/../2 HTTP/1.1\r\nHost: localhost\r\n\r\n',
      400,
    ],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
    [
      'an upgrade',
      'GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
      400,
    ],
  ]
  for (const [what, bytes, status] of cases) {
    const head = await firstLine(Number(port), bytes)
    expect(
      head.startsWith(`HTTP/1.1 ${status} `),
      `${what} yields ${head || 'nothing'}, not ${status}`,
    )
  }
}

function scale(stack: Stack, replicas: number): Promise<string> {
  const args = words(
    `up --wait --no-recreate --no-deps --scale coordinator=${replicas} coordinator`,
  )
  return stack.compose(args)
}

/**
 * Sends requests on one connection, one after the other.
 *
 * @returns the names of the coordinators whose logs contain one of the requests
 */
async function replicasUsed(stack: Stack, requests: number): Promise<ReadonlySet<string>> {
  const ids = await request401s(stack, (sent) => sent < requests)
  const log = await stack.compose(['logs', '--no-color', 'coordinator'])
  const mine = log.split('\n').filter((line) => ids.some((id) => line.includes(id)))
  // Compose sometimes writes the control sequence "erase line" before the name of the container.
  return new Set(mine.map((line) => /coordinator-\d+/.exec(line)?.[0] ?? line))
}

/**
 * Sends requests without a service key on one connection, one after the other, while `isMore` returns true.
 *
 * @returns the request ids of the requests
 * @throws {Error} if a request is not rejected by a coordinator because of the missing service key
 */
async function request401s(
  stack: Stack,
  isMore: (sent: number) => boolean,
): Promise<readonly string[]> {
  const ids: string[] = []
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  try {
    while (isMore(ids.length)) {
      const request = get(`${stack.at('COORDINATOR_PORT')}/nothing`, { agent })
      const [response] = (await once(request, 'response')) as [IncomingMessage]
      await text(response)
      expect(response.statusCode === 401, `a request yields ${response.statusCode}, not 401`)
      ids.push(String(response.headers['x-request-id']))
    }
    return ids
  } finally {
    agent.destroy()
  }
}

/**
 * Sends `bytes` and returns the status line of the response. Returns an empty string if the connection ends without
 * a response.
 */
async function firstLine(port: number, bytes: string): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  try {
    socket.setTimeout(10_000, () => socket.destroy(new Error('no response within 10 s')))
    socket.write(bytes)
    for await (const chunk of socket) return String(chunk).split('\r\n')[0] ?? ''
    return ''
  } finally {
    socket.destroy()
  }
}
