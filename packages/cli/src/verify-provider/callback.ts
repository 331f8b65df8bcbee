/**
 * Receives the callback of the authorization request. If REDIRECT is a loopback address, a listener at this address
 * receives the callback. Otherwise the user pastes the address of the callback.
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { CommandFailed } from '../exit-code.ts'
import { isLoopback } from '@integration-host/shared/http/loopback'
import { promptSecret, createProgress, isInteractive, notify, type Terminal } from '../terminal.ts'
import { NoCallback } from './session.ts'

export interface CallbackOptions {
  readonly terminal: Terminal
  readonly redirect: string
  /** Milliseconds to wait for the callback. */
  readonly waitMs: number
}

/**
 * Prints the authorization URL and resolves with the parameters of the callback that has the `state` of this URL. The
 * URL is printed on a separate line on standard error, because it contains the client id.
 *
 * @throws {NoCallback} no callback arrived in time, or this process cannot receive a callback.
 */
export async function receiveCallback(
  { terminal, redirect, waitMs }: CallbackOptions,
  url: string,
  state: string,
): Promise<URLSearchParams> {
  const deadline = AbortSignal.timeout(waitMs)
  const signal = AbortSignal.any([terminal.signal, deadline])
  try {
    const listener = await listenOn(redirect)
    if (listener === null) return await readPasted({ ...terminal, signal }, redirect, url, state)
    try {
      invite(terminal, url)
      return await awaitCallback(listener, { terminal, redirect, state, signal, waitMs })
    } finally {
      for (const server of listener) {
        server.close()
        server.closeAllConnections()
      }
    }
  } catch (error) {
    terminal.signal.throwIfAborted()
    if (deadline.aborted)
      throw new NoCallback(`no callback within ${waitMs / 1_000} s; was the address opened?`, true)
    throw error instanceof CommandFailed ? new NoCallback('nothing was pasted', true) : error
  }
}

const invite = (terminal: Terminal, url: string): void =>
  notify(
    terminal,
    'Open this address in a browser (it contains the client id: do not paste it into issues):',
    url,
  )

/** Returns servers on the loopback addresses of the redirect URI; `null` if the redirect URI has no loopback host. */
async function listenOn(redirect: string): Promise<Server[] | null> {
  const { protocol, hostname, port } = new URL(redirect)
  if (protocol !== 'http:' || !isLoopback(hostname)) return null
  // A browser may resolve localhost to 127.0.0.1 or to ::1.
  const hosts = hostname === 'localhost' ? ['127.0.0.1', '::1'] : [hostname.replace(/[[\]]/g, '')]
  const opened = await Promise.allSettled(
    hosts.map(async (host) => {
      const server = createServer().listen(Number(port || 80), host)
      await once(server, 'listening')
      return server
    }),
  )
  const servers = opened.flatMap((one) => (one.status === 'fulfilled' ? one.value : []))
  const taken = opened.some(
    (one) =>
      one.status === 'rejected' && (one.reason as NodeJS.ErrnoException).code === 'EADDRINUSE',
  )
  if (servers.length > 0 && !taken) return servers
  for (const server of servers) server.close()
  const why = taken ? 'another process listens there' : 'it cannot be listened on'
  throw new NoCallback(
    `REDIRECT (port ${port || 80}): ${why}. Stop what listens there, or set another registered redirect URI`,
    false,
  )
}

interface Awaited {
  readonly terminal: Terminal
  readonly redirect: string
  readonly state: string
  readonly signal: AbortSignal
  readonly waitMs: number
}

async function awaitCallback(
  servers: readonly Server[],
  { terminal, redirect, state, signal, waitMs }: Awaited,
): Promise<URLSearchParams> {
  signal.throwIfAborted()
  const progress = createProgress(terminal)
  const startedAt = terminal.now()
  const ticking = setInterval(() => {
    const leftSeconds = Math.max(0, Math.ceil((waitMs - (terminal.now() - startedAt)) / 1_000))
    progress.update(`Waiting for the browser, ${leftSeconds} s left`)
  }, 1_000)
  try {
    return await new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
      const receive = (request: IncomingMessage, response: ServerResponse): void => {
        const callback = new URL(request.url ?? '/', redirect)
        if (callback.pathname !== new URL(redirect).pathname) {
          respond(response, 404, 'Nothing is here.')
          return
        }
        if (!isOfThisRun(callback.searchParams, state)) {
          // Any web page can send a request to this address, so a request with a wrong `state` is ignored.
          progress.end()
          notify(terminal, 'A callback with another state was received and ignored.')
          respond(response, 400, 'This is not the callback that is expected.')
          return
        }
        respond(response, 200, 'Received. This window can be closed. Continue in the terminal.')
        resolve(callback.searchParams)
      }
      for (const server of servers) server.on('request', receive)
    })
  } finally {
    clearInterval(ticking)
    progress.end()
  }
}

/**
 * Returns whether the parameters are the callback of this run. Intuit does not document whether a callback that denies
 * access has a `state`. Therefore such a callback is accepted without `state`.
 */
const isOfThisRun = (callback: URLSearchParams, state: string): boolean =>
  callback.get('state') === state ||
  (callback.has('error') && !callback.has('state') && !callback.has('code'))

function respond(response: ServerResponse, status: number, text: string): void {
  response
    .writeHead(status, {
      'Content-Type': 'text/plain; charset=utf-8',
      'Cache-Control': 'no-store',
      // The address of this page contains the authorization code. Therefore the browser must not send the address as a
      // referrer.
      'Referrer-Policy': 'no-referrer',
      Connection: 'close',
    })
    .end(`${text}\n`)
}

const PASTE_ATTEMPTS = 3

async function readPasted(
  terminal: Terminal,
  redirect: string,
  url: string,
  state: string,
): Promise<URLSearchParams> {
  if (!isInteractive(terminal)) {
    throw new NoCallback(
      'REDIRECT does not lead to this machine, and there is no terminal to paste the callback on',
      false,
    )
  }
  invite(terminal, url)
  for (let attempt = 1; ; attempt += 1) {
    const pasted = await promptSecret(
      terminal,
      'Paste the address that the browser was sent to (not shown): ',
    )
    const problem = pasteProblem(pasted.reveal().trim(), redirect, state)
    if (problem === null) return new URL(pasted.reveal().trim()).searchParams
    if (attempt === PASTE_ATTEMPTS) throw new NoCallback(`the pasted address ${problem}`, true)
    notify(terminal, `The pasted address ${problem}.`)
  }
}

function pasteProblem(text: string, redirect: string, state: string): string | null {
  if (!URL.canParse(text)) return 'is not an address'
  const { origin, pathname, searchParams } = new URL(text)
  const expected = new URL(redirect)
  if (origin !== expected.origin || pathname !== expected.pathname) return 'is not that of REDIRECT'
  return isOfThisRun(searchParams, state) ? null : 'has another state'
}
