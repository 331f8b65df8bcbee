import { randomBytes } from 'node:crypto'
import { AccessKeys } from '@integration-host/shared/access/access-keys'
import { honoListener, listen } from '@integration-host/shared/http/http-server'
import { peerNetworks } from '@integration-host/shared/http/peer-network'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import { openListFile } from '@integration-host/shared/files/list-file'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import {
  chooseProxy,
  logForwardProxies,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { createProxiedFetch } from '@integration-host/shared/http/forward-proxy/tunnel'
import { createRateLimit } from '@integration-host/shared/process/limits'
import type { RunningService } from '@integration-host/shared/process/lifecycle'
import { createMemoryRequestStore, createMemorySessionStore } from './adapters/memory/stores.ts'
import { createOpenIdProvider } from './adapters/openid/openid-provider.ts'
import { createCompanyNames } from './adapters/peers/company-names.ts'
import { createGatewayRealms } from './adapters/peers/gateway-realms.ts'
import { createInstallationReader } from './adapters/peers/installation-reader.ts'
import { createIntegrityCheck } from './adapters/peers/integrity.ts'
import { createReplicaReader } from './adapters/peers/replicas.ts'
import { createSandboxClient } from './adapters/peers/sandbox-client.ts'
import { createServiceClient } from './adapters/peers/service-client.ts'
import { createAlertReader, createRangeReader } from './adapters/prometheus/prometheus.ts'
import { createActionAnnouncer } from './action-announcer.ts'
import { createApp } from './app.ts'
import type { BuiltApp } from './build-app.ts'
import type { Config } from './config.ts'
import { watchInstallation } from './installation-watch.ts'
import { createBrowserStreams } from './routes/stream.ts'
import { CALLBACK_PATH } from './routes/openid-sign-in.ts'
import { linkUrl } from './routes/sessions.ts'
import type { ActionCounter, RequestStore, SessionStore } from './session/stores.ts'
import { authorize, type PresentLists } from './session/authorize.ts'
import { parseUserList, type User } from './session/password.ts'
import { createKnownBrowsers } from './session/known-browsers.ts'
import { createOneTimeLinks } from './session/one-time-link.ts'
import { createSessions } from './session/sessions.ts'
import { createFlowSeal } from './session/sign-in-flow.ts'
import { createSignInLog, withSignInLog } from './session/sign-in-log.ts'
import { createSignInDelay } from './session/sign-in-delay.ts'
import { createFrames } from './view/frames.ts'

export interface ServiceDeps {
  readonly logger: Logger
  readonly health: Health
  readonly built: BuiltApp
  /** The stores that replicas share. Without them, the sessions are in the memory of this process. */
  readonly stores?: SharedStores | undefined
}

export interface SharedStores {
  readonly sessions: SessionStore
  readonly actions: ActionCounter
  readonly requests: RequestStore
}

export interface RunningConsole extends RunningService {
  /** Returns the address of a one-time link; `null` if the console has no sign-in by links. */
  signInLink(): string | null
}

/** Starts the console. It listens at once, even if the services are unavailable. */
export async function startConsole(config: Config, deps: ServiceDeps): Promise<RunningConsole> {
  const { logger, health, built } = deps
  const stores = deps.stores ?? {
    sessions: createMemorySessionStore(Date.now),
    actions: null,
    requests: createMemoryRequestStore(() => performance.now()),
  }
  await using opened = new AsyncDisposableStack()
  const metrics = createMetrics('console')
  const signIns = metrics.counter('console_sign_ins_total', 'Attempts to sign in', [
    'way',
    'outcome',
  ])
  if (config.openId !== null) logForwardProxies(config, logger)
  if (config.OPERATOR_API_KEY === undefined)
    logger.warn(
      { remedy: 'set OPERATOR_API_KEY to a key without the scope credentials:token' },
      'the console uses a service key that may also read access tokens; give the console a key of its own',
    )
  const clientOf = (name: string, serviceUrl: string) =>
    createServiceClient({
      name,
      url: serviceUrl,
      key: config.key,
      canActFor: config.OPERATOR_API_KEY !== undefined,
    })
  const coordinator = clientOf('coordinator', config.COORDINATOR_URL)
  const tokenService = clientOf('token-service', config.TOKEN_SERVICE_URL)
  let users: ReadonlyMap<string, User> = new Map()
  if (config.usersFile !== null)
    opened.use(
      openListFile(
        config.usersFile,
        {
          setting: 'USERS_FILE',
          parse: parseUserList,
          onList: (list) => void (users = new Map(list.map((user) => [user.name, user]))),
        },
        { logger, health, metrics },
      ),
    )
  const lists: PresentLists = {
    ways: config.SIGN_IN,
    users: { get: (name) => users.get(name) },
    people: {
      operators: config.OIDC_OPERATORS,
      viewers: config.OIDC_VIEWERS,
      groupsClaim: config.OIDC_GROUPS_CLAIM,
    },
  }
  const signInLog = createSignInLog(Date.now)
  const sessions = withSignInLog(
    createSessions({
      store: stores.sessions,
      now: Date.now,
      hours: config.SESSION_HOURS,
      idleMinutes: config.SESSION_IDLE_MINUTES,
      authorize: (session) => authorize(session, lists),
    }),
    signInLog,
  )
  const frames = createFrames(randomBytes(6).toString('hex'), () => performance.now())
  const companyNames = createCompanyNames(tokenService, () => performance.now())
  const watch = opened.use(
    watchInstallation({
      coordinator,
      reader: createInstallationReader(coordinator, tokenService),
      companyNames,
      replicas: new Map(
        (
          [
            ['coordinator', config.COORDINATOR_URL],
            ['token-service', config.TOKEN_SERVICE_URL],
            ['accounting-gateway', config.GATEWAY_URL],
            ['demo-api', config.DEMO_API_URL],
            ['sandbox-provider', config.SANDBOX_URL],
            ['webhook-receiver', config.WEBHOOK_RECEIVER_URL],
          ] as const
        ).flatMap(([name, url]) =>
          url === undefined ? [] : [[name, createReplicaReader(url)] as const],
        ),
      ),
      frames,
      readAlerts:
        config.PROMETHEUS_URL === undefined ? null : createAlertReader(config.PROMETHEUS_URL),
      logger,
    }),
  )
  const announcer = opened.use(
    createActionAnnouncer({
      counter: stores.actions,
      readAgain: () => watch.readAgain(),
      frames,
      logger,
    }),
  )
  const streams = opened.use(createBrowserStreams(sessions, frames, logger))
  const openStreams = metrics.gauge('console_event_streams', 'Browsers that read the event stream')
  metrics.beforeEach(() => openStreams.set({}, streams.size))
  const links = createOneTimeLinks(Date.now)
  // Anyone can begin a sign-in and send a made-up code.
  const failures = createRateLimit({
    count: 30,
    intervalMs: 60_000,
    now: () => performance.now(),
  })
  let url = config.CONSOLE_URL ?? ''
  const app = createApp({
    logger,
    health,
    metrics,
    built,
    sessions,
    streams,
    requests: stores.requests,
    acted: () => announcer.acted(),
    links,
    ...lists,
    openId:
      config.openId === null
        ? null
        : createOpenIdProvider({
            ...config.openId,
            scope: config.OIDC_SCOPE,
            redirectUri: () => url + CALLBACK_PATH,
            onFailure(reason) {
              if (failures.take()) logger.warn({ reason }, 'sign-in at the OpenID provider failed')
            },
            fetch: createProxiedFetch(chooseProxy(config)),
            now: () => performance.now(),
          }),
    flows: createFlowSeal(config.key, Date.now),
    delay: createSignInDelay(() => performance.now()),
    knownBrowsers: createKnownBrowsers(config.key, Date.now),
    networkOf: peerNetworks(config.TRUSTED_PROXIES),
    isHttps: url.startsWith('https:'),
    viewersSeeData: config.VIEWER_SEES_DATA === 'on',
    tracesUrl: config.TRACES_URL ?? null,
    commandLine: config.COMMAND_LINE,
    sessionHours: config.SESSION_HOURS,
    onSignIn(way, outcome) {
      signIns.inc({ way, outcome })
      if (outcome === 'rejected') signInLog.add('rejected', null, way)
    },
    signInLog,
    sandbox: config.SANDBOX_URL === undefined ? null : createSandboxClient(config.SANDBOX_URL),
    readRange:
      config.PROMETHEUS_URL === undefined ? null : createRangeReader(config.PROMETHEUS_URL),
    grafanaUrl: config.GRAFANA_URL ?? null,
    gatewayRealms: createGatewayRealms(config.GATEWAY_URL, (replicaUrl) =>
      clientOf('accounting-gateway', replicaUrl),
    ),
    keys: new AccessKeys(config.SERVICE_API_KEY ?? []),
    consoleUrl: () => url,
    now: () => watch.now(),
    services: () => watch.services(),
    installation: () => watch.installation(),
    checkIntegrity: createIntegrityCheck(coordinator, Date.now),
    coordinator,
    tokenService,
    companyNames,
    hostNames: ['console.localhost', ...(url === '' ? [] : [new URL(url).hostname])],
  })
  const server = opened.use(
    await listen(honoListener(app), { host: config.HOST, port: config.PORT, metrics }),
  )
  if (url === '') url = server.url
  const services = opened.move()
  return {
    url: server.url,
    signInLink: () =>
      config.SIGN_IN.includes('link') ? linkUrl(url, links.create().secret) : null,
    async [Symbol.asyncDispose]() {
      // The event streams end first, so that the server need not wait for the browsers.
      streams[Symbol.dispose]()
      await services.disposeAsync()
    },
  }
}
