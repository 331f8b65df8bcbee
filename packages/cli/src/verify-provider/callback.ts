/**
 * Receives the callback of the authorization request. If REDIRECT is a loopback address, a listener at this address
 * receives the callback. Otherwise the user pastes the address of the callback.
 */
import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import { isLoopback } from '@integration-host/shared/http/origin-guard'
import { CommandFailed } from '../exit-code.ts'
import { isInteractive, notify, promptSecret, type Terminal } from '../terminal.ts'
import { NoCallback } from './session.ts'

interface Authorization {
  readonly terminal: Terminal
  readonly redirect: string
  /** The address to open. It contains the client id, so it is printed on a separate line on standard error. */
  readonly url: string
  readonly state: string
}

/**
 * Prints the authorization URL, and resolves with the parameters of the callback that has the `state` of this URL.
 *
 * @throws {NoCallback} no callback arrived within `waitMs`, or this process cannot receive a callback.
 */
export async function receiveCallback(
  authorization: Authorization,
  waitMs: number,
): Promise<URLSearchParams> {
  const { terminal, redirect } = authorization
  const deadline = AbortSignal.timeout(waitMs)
  const signal = AbortSignal.any([terminal.signal, deadline])
  const limited = { ...authorization, terminal: { ...terminal, signal } }
  const { protocol, hostname } = new URL(redirect)
  try {
    return await (protocol === 'http:' && isLoopback(hostname)
      ? awaitCallback(limited)
      : readPasted(limited))
  } catch (error) {
    terminal.signal.throwIfAborted()
    if (deadline.aborted)
      throw new NoCallback(`no callback within ${waitMs / 1_000} s; was the address opened?`, true)
    throw error instanceof CommandFailed ? new NoCallback('nothing was pasted', true) : error
  }
}

const invite = ({ terminal, url }: Authorization): void =>
  notify(
    terminal,
    'Open this address in a browser (it contains the client id: do not paste it into issues):',
    url,
  )

async function awaitCallback(authorization: Authorization): Promise<URLSearchParams> {
  const { terminal, redirect, state } = authorization
  const { promise, resolve, reject } = Promise.withResolvers<URLSearchParams>()
  const servers = await listenOn(new URL(redirect), (request, response) => {
    const respond = (status: number, text: string): void =>
      void response
        .writeHead(status, {
          'Content-Type': 'text/plain; charset=utf-8',
          'Cache-Control': 'no-store',
          // The address of this page contains the authorization code, which the browser must not send as a referrer.
          'Referrer-Policy': 'no-referrer',
          Connection: 'close',
        })
        .end(`${text}\n`)
    const callback = new URL(request.url ?? '/', redirect)
    if (callback.pathname !== new URL(redirect).pathname) return respond(404, 'Nothing is here.')
    if (!isOfThisRun(callback.searchParams, state)) {
      // Any web page can send a request to this address, so a request with a wrong `state` is ignored.
      notify(terminal, 'A callback with another state was received and ignored.')
      return respond(400, 'This is not the callback that is expected.')
    }
    respond(200, 'Received. This window can be closed. Continue in the terminal.')
    return resolve(callback.searchParams)
  })
  try {
    invite(authorization)
    terminal.signal.addEventListener('abort', () => reject(terminal.signal.reason as Error))
    terminal.signal.throwIfAborted()
    return await promise
  } finally {
    for (const server of servers) {
      server.close()
      server.closeAllConnections()
    }
  }
}

/** Listens on the loopback addresses of the redirect URI. A browser may resolve localhost to 127.0.0.1 or to ::1. */
async function listenOn(
  { hostname, port }: URL,
  listener: RequestListener,
): Promise<readonly Server[]> {
  const hosts = hostname === 'localhost' ? ['127.0.0.1', '::1'] : [hostname.replace(/[[\]]/g, '')]
  const opened = await Promise.allSettled(
    hosts.map(async (host) => {
      const server = createServer(listener).listen(Number(port || 80), host)
      await once(server, 'listening')
      return server
    }),
  )
  const servers = opened.flatMap((one) => (one.status === 'fulfilled' ? one.value : []))
  const codes = opened.map(
    (one) => one.status === 'rejected' && (one.reason as NodeJS.ErrnoException).code,
  )
  const isTaken = codes.includes('EADDRINUSE')
  if (servers.length > 0 && !isTaken) return servers
  for (const server of servers) server.close()
  const why = isTaken ? 'another process listens there' : 'it cannot be listened on'
  throw new NoCallback(
    `REDIRECT (port ${port || 80}): ${why}. Stop what listens there, or set another registered redirect URI`,
    false,
  )
}

/**
 * Returns whether the parameters are the callback of this run. Intuit does not document whether a callback that denies
 * access has a `state`. Therefore such a callback is accepted without `state`.
 */
const isOfThisRun = (callback: URLSearchParams, state: string): boolean =>
  callback.get('state') === state ||
  (callback.has('error') && !callback.has('state') && !callback.has('code'))

const PASTE_ATTEMPTS = 3

async function readPasted(authorization: Authorization): Promise<URLSearchParams> {
  const { terminal, redirect, state } = authorization
  if (!isInteractive(terminal))
    throw new NoCallback(
      'REDIRECT does not lead to this machine, and there is no terminal to paste the callback on',
      false,
    )
  invite(authorization)
  const question = 'Paste the address that the browser was sent to (not shown): '
  for (let attempt = 1; ; attempt += 1) {
    const pasted = URL.parse((await promptSecret(terminal, question)).reveal().trim())
    const isExpected = pasted !== null && addressOf(pasted) === addressOf(new URL(redirect))
    if (isExpected && isOfThisRun(pasted.searchParams, state)) return pasted.searchParams
    const problem = isExpected
      ? 'has another state'
      : pasted === null
        ? 'is not an address'
        : 'is not that of REDIRECT'
    if (attempt === PASTE_ATTEMPTS) throw new NoCallback(`the pasted address ${problem}`, true)
    notify(terminal, `The pasted address ${problem}.`)
  }
}

const addressOf = ({ origin, pathname }: URL): string => origin + pathname
