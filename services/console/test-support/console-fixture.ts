/** The console in this process, in front of services that listen on no port. */
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { readConfig } from '../src/config.ts'
import { startConsole } from '../src/service.ts'

export const SERVICE_KEY = 'a-service-key-of-the-console-tests-0123456789'
const UNUSED = 'http://127.0.0.1:9'

interface RequestOptions extends Omit<RequestInit, 'headers'> {
  readonly cookie?: string
  readonly headers?: Readonly<Record<string, string>>
}

export interface ConsoleFixture extends AsyncDisposable {
  readonly url: string
  readonly log: () => string
  readonly signInLink: () => string
  /** Sends a request as a page of the console would. */
  request(path: string, options?: RequestOptions): Promise<Response>
  /** Signs in with this body. Returns the cookie of the session. */
  signIn(body: unknown): Promise<string>
}

/** `env` adds settings. */
export async function startConsoleFixture(
  env: Readonly<Record<string, string>> = {},
): Promise<ConsoleFixture> {
  let log = ''
  const logger = createLogger('console', 'debug', { write: (line) => void (log += line) })
  const config = readConfig({
    PORT: '0',
    SIGN_IN: 'link',
    SERVICE_API_KEY: SERVICE_KEY,
    OPERATOR_API_KEY: 'an-operator-key-of-the-console-tests-0123456789',
    TOKEN_SERVICE_URL: UNUSED,
    GATEWAY_URL: UNUSED,
    COORDINATOR_URL: UNUSED,
    ...env,
  })
  const asset = { path: '/', type: 'text/html; charset=utf-8', body: Buffer.from('<p>shell') }
  const shell = { ...asset, gzip: Buffer.from('') }
  const running = await startConsole(config, {
    logger,
    health: createHealth(logger),
    built: { shell, assets: [] },
  })
  const request: ConsoleFixture['request'] = (path, { cookie, headers, ...options } = {}) =>
    fetch(running.url + path, {
      ...options,
      headers: {
        Origin: running.url,
        ...(options.method === 'POST' && { 'Content-Type': 'application/json' }),
        ...(cookie !== undefined && { Cookie: cookie }),
        ...headers,
      },
    })
  return {
    url: running.url,
    log: () => log,
    signInLink: () => running.signInLink() ?? '',
    request,
    async signIn(body) {
      const response = await request('/api/session', { method: 'POST', body: JSON.stringify(body) })
      if (!response.ok) throw new Error(`the sign-in was rejected with ${response.status}`)
      return response.headers.getSetCookie()[0]?.split(';')[0] ?? ''
    },
    [Symbol.asyncDispose]: () => running[Symbol.asyncDispose](),
  }
}
