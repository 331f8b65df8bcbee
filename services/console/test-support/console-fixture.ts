/** Starts the console in the test process. No program listens on the configured addresses of the other services. */
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import * as esbuild from 'esbuild'
import { type AppDeps, createApp } from '../src/app.ts'
import { type BuiltApp, buildApp } from '../src/build-app.ts'
import { readConfig } from '../src/config.ts'
import { type SharedStores, startConsole } from '../src/service.ts'

export const SERVICE_KEY = 'a-service-key-of-the-console-tests-0123456789'
const UNUSED = 'http://127.0.0.1:9'
const BUILT: BuiltApp = {
  shell: {
    path: '/',
    type: 'text/html; charset=utf-8',
    body: Buffer.from('<p>shell'),
    gzip: Buffer.from(''),
  },
  assets: [],
}

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

/** Returns the browser program as the host bundles it. */
export const bundledApp = (): Promise<BuiltApp> => buildApp(esbuild)

export interface Route {
  readonly method: string
  /** The path with the names of its parameters, such as `/api/runs/:process/:id`. */
  readonly path: string
}

/**
 * Returns every route of the console from its router. The handlers are not called, so most dependencies can be
 * missing.
 */
export function consoleRoutes(): readonly Route[] {
  const logger = createLogger('console', 'silent')
  const deps: Partial<AppDeps> = {
    logger,
    health: createHealth(logger),
    metrics: createMetrics('console'),
    built: BUILT,
    hostNames: [],
    isHttps: false,
  }
  const routes = createApp(deps as AppDeps).routes
  // The router has an entry for each handler, and middleware has the method ALL.
  const unique = new Map(routes.map(({ method, path }) => [`${method} ${path}`, { method, path }]))
  return [...unique.values()].filter(({ method }) => method !== 'ALL')
}

/** Starts the console. `env` adds settings. Without `stores` the sessions are in memory. */
export async function startConsoleFixture(
  env: Readonly<Record<string, string>> = {},
  stores?: SharedStores,
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
  const running = await startConsole(config, {
    logger,
    health: createHealth(logger),
    built: BUILT,
    stores,
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
