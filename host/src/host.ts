/**
 * The embedded host runs the code of all services in one OS process, with files instead of Redis and Postgres, and an
 * in-process bus instead of RabbitMQ. The services call each other over HTTP, as separate processes do.
 */
import { accessSync, constants, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { readEmbeddedConfig as readGatewayConfig } from '@integration-host/accounting-gateway/config'
import { startAccountingGateway } from '@integration-host/accounting-gateway/service'
import type { RunningConsole } from '@integration-host/console/service'
import { readEmbeddedConfig as readCoordinatorConfig } from '@integration-host/coordinator/config'
import { configure } from '@integration-host/coordinator/load-processes'
import { createMemoryTransactionSource } from '@integration-host/coordinator/memory-transaction-source'
import { startCoordinator } from '@integration-host/coordinator/service'
import {
  readConfig as readDemoApiConfig,
  SERVICE_TITLE as DEMO_API,
} from '@integration-host/demo-api/config'
import { startDemoApi } from '@integration-host/demo-api/service'
import { readConfig as readSandboxConfig } from '@integration-host/sandbox-provider/config'
import { startSandboxProvider } from '@integration-host/sandbox-provider/service'
import type { Environment } from '@integration-host/shared/process/config'
import { createHealth, reasonOf } from '@integration-host/shared/observability/health'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { type RunningService, StartupError } from '@integration-host/shared/process/lifecycle'
import {
  createLogger,
  type Logger,
  type LogLevel,
} from '@integration-host/shared/observability/logger'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import { readEmbeddedConfig as readTokenConfig } from '@integration-host/token-service/config'
import { createFileConnectLinkStore } from '@integration-host/token-service/file-connect-link-store'
import { createFileCredentialStore } from '@integration-host/token-service/file-credential-store'
import { countDecryptionFailures } from '@integration-host/token-service/metrics'
import { startTokenService } from '@integration-host/token-service/service'
import { readEmbeddedConfig as readReceiverConfig } from '@integration-host/webhook-receiver/config'
import { startWebhookReceiver } from '@integration-host/webhook-receiver/service'
import { startEmbeddedConsole } from './embedded-console.ts'
import { applicationKeyFile, consoleKey, embeddedSecrets } from './embedded-secrets.ts'
import { freePorts } from '@integration-host/shared/process/free-ports'
import { type Provider, recordProvider, requireProvider } from './provider-of-data.ts'
import type { Installation } from './story.ts'

export interface HostOptions {
  /** The folder that contains the files of the stores, the folder `OrderCSV/` and the generated secrets. */
  readonly dataDir: string
  /** `standard` assigns the ports 7216 to 7222; `free` assigns ports that no other process uses. */
  readonly ports: 'standard' | 'free'
  /**
   * `sandbox` ignores the settings of a provider, `real` requires them. A data folder that was used with one of the
   * values cannot be used with the other value.
   * The default is `real` if `DISCOVERY_URL` is set, and otherwise `sandbox`.
   */
  readonly provider?: Provider | undefined
  readonly env: Environment
  readonly logLevel: LogLevel
  readonly logTo: { write(line: string): void }
  /** Whether the web console is started as well; `false` by default. */
  readonly withConsole?: boolean
  /** Whether changed process files are reloaded while the host runs; `false` by default. */
  readonly watchesProcesses?: boolean
}

export interface Host extends Installation, AsyncDisposable {
  readonly dataDir: string
  /** The path of the file with a key for applications; `null` if the environment sets the keys directly. */
  readonly applicationKeyFile: string | null
  /** The address of the sandbox provider; `null` if the environment names a real provider. */
  readonly sandboxProvider: string | null
  /**
   * The address of the webhook receiver; `null` if the environment names a real provider but has no
   * `WEBHOOK_VERIFIER_TOKENS`.
   */
  readonly webhookReceiver: string | null
  /** The web console; `null` if it was not started, or cannot run on this platform. */
  readonly console: RunningConsole | null
  /** The names of the processes that were loaded at the start. */
  readonly processes: readonly string[]
}

const SERVICES = [
  'demoApi',
  'tokenService',
  'accountingGateway',
  'coordinator',
  'sandboxProvider',
  'webhookReceiver',
  'console',
] as const
type ServiceName = (typeof SERVICES)[number]
export const STANDARD_PORTS: Readonly<Record<ServiceName, number>> = {
  demoApi: 7216,
  tokenService: 7217,
  accountingGateway: 7218,
  coordinator: 7219,
  sandboxProvider: 7220,
  webhookReceiver: 7222,
  console: 7221,
}

/**
 * Starts all services, the sandbox provider first, and resolves when all of them listen.
 *
 * @throws {StartupError} another process uses the data folder, or a file in it is damaged.
 */
export async function startHost(options: HostOptions): Promise<Host> {
  const dataDir = resolve(options.dataDir)
  makeFolder(dataDir)
  if (options.provider !== undefined) requireProvider(dataDir, options.provider)
  const isSandbox =
    (options.provider ?? (options.env['DISCOVERY_URL'] ? 'real' : 'sandbox')) === 'sandbox'
  const secrets = embeddedSecrets(dataDir, options.env, isSandbox)
  // The console's key is created before the services start, because they read the list of keys when they start.
  const keyOfConsole = options.withConsole === true ? await consoleKey(secrets, options.env) : {}
  const ports = options.ports === 'standard' ? STANDARD_PORTS : await unusedPorts()
  const at = (name: ServiceName): string => `http://127.0.0.1:${ports[name]}`
  // If the sandbox provider (a simulated OAuth provider and accounting API) is used, the settings of a real provider
  // are ignored. Otherwise a service could use parts of both providers. An empty DISCOVERY_URL counts as unset.
  const sandbox: Environment = {
    CLIENT_ID: 'integration-host',
    DISCOVERY_URL: `${at('sandboxProvider')}/.well-known/openid_configuration`,
    REDIRECT: `${at('tokenService')}/callback`,
    DISCONNECT_URL: `${at('tokenService')}/disconnected`,
    ACCOUNTING_URL: at('sandboxProvider'),
    WEBHOOK_URL: `${at('webhookReceiver')}/webhooks/intuit`,
    BROWSER_URL: '',
    PERSONALITY: 'intuit',
    PROVIDER_PROFILE: 'intuit',
  }
  const settings = (name: ServiceName): Environment => ({
    REDIRECT: `${at('tokenService')}/callback`,
    // The host listens only on the loopback interface, so every client runs on this machine and may connect a company.
    AUTHORIZE: 'open',
    // Settings of the environment override the defaults. Only the addresses of the services cannot be overridden,
    // because this process assigns them.
    ...options.env,
    ...secrets,
    ...(isSandbox && sandbox),
    HOST: '127.0.0.1',
    PORT: String(ports[name]),
    LOG_LEVEL: options.logLevel,
    DATA_DIR: dataDir,
    TRANSACTION_SOURCE: 'memory',
    TOKEN_SERVICE_URL: at('tokenService'),
    GATEWAY_URL: at('accountingGateway'),
    COORDINATOR_URL: at('coordinator'),
    DEMO_API_URL: at('demoApi'),
    BASE_URL: at('sandboxProvider'),
    STATE_FILE: join(dataDir, 'sandbox-provider.bin'),
  })
  const deps = (name: string) => {
    const logger = createLogger(name, options.logLevel, options.logTo)
    return { logger, health: createHealth(logger) }
  }

  await using opened = new AsyncDisposableStack()
  const bus = opened.use(
    createInProcessBus(createLogger('message-bus', options.logLevel, options.logTo)),
  )
  const tokenConfig = readTokenConfig(settings('tokenService'))
  const tokenDeps = { ...deps('token-service'), metrics: createMetrics('token-service') }
  const keys = countDecryptionFailures(tokenConfig.CREDENTIAL_KEYS, tokenDeps.metrics)
  const store = opened.use(await createFileCredentialStore(dataDir, keys))

  if (isSandbox)
    opened.use(
      await startSandboxProvider(
        readSandboxConfig(settings('sandboxProvider')),
        deps('sandbox-provider'),
      ),
    )
  const links = await createFileConnectLinkStore(join(dataDir, 'connect-links'))
  opened.use(await startTokenService(tokenConfig, { ...tokenDeps, store, links, bus }))
  opened.use(
    await startAccountingGateway(readGatewayConfig(settings('accountingGateway')), {
      ...deps('accounting-gateway'),
      bus,
    }),
  )
  const { config, processes, watchProcesses } = await configure(
    settings('coordinator'),
    readCoordinatorConfig,
  )
  opened.use(
    await startCoordinator(config, {
      ...deps('coordinator'),
      processes,
      ...(options.watchesProcesses === true && { watchProcesses }),
      openSource: (webhooksOf) => createMemoryTransactionSource(dataDir, { webhooksOf }),
      bus,
    }),
  )
  // A real provider sends no webhooks before an operator has given it the address of this host and set the verifier
  // token.
  const receivesWebhooks = isSet(settings('webhookReceiver'), 'WEBHOOK_VERIFIER_TOKENS')
  if (receivesWebhooks)
    opened.use(
      await startWebhookReceiver(readReceiverConfig(settings('webhookReceiver')), {
        ...deps('webhook-receiver'),
        bus,
      }),
    )
  else warnOfChanges(processes, deps('webhook-receiver').logger)
  const demoApi: RunningService = opened.use(
    await startDemoApi(readDemoApiConfig(settings('demoApi')), deps(DEMO_API)),
  )
  const console =
    options.withConsole === true
      ? await startEmbeddedConsole({
          settings: {
            ...settings('console'),
            ...keyOfConsole,
            CONSOLE_URL: at('console'),
            ...(isSandbox && { SANDBOX_URL: at('sandboxProvider') }),
            ...(receivesWebhooks && { WEBHOOK_RECEIVER_URL: at('webhookReceiver') }),
          },
          ...deps('console'),
        })
      : null
  if (console !== null) opened.use(console)
  // The provider is recorded after the start. If the start fails, the folder can still be used with the other
  // provider.
  if (options.provider !== undefined) recordProvider(dataDir, options.provider)

  // The command line finds the addresses there, also those of free ports.
  const addresses = join(dataDir, 'addresses.json')
  opened.defer(() => rmSync(addresses, { force: true }))
  const { TOKEN_SERVICE_URL, GATEWAY_URL, COORDINATOR_URL, DEMO_API_URL } = settings('console')
  const named = { TOKEN_SERVICE_URL, GATEWAY_URL, COORDINATOR_URL, DEMO_API_URL }
  writeFileSync(
    addresses,
    JSON.stringify({ ...named, ...(console !== null && { CONSOLE_URL: at('console') }) }),
  )

  const services = opened.move()
  return {
    dataDir,
    applicationKeyFile: applicationKeyFile(secrets) ?? options.env['SERVICE_API_KEY_FILE'] ?? null,
    serviceKey: tokenConfig.SERVICE_API_KEY[0].reveal(),
    demoApi: demoApi.url,
    tokenService: at('tokenService'),
    accountingGateway: at('accountingGateway'),
    coordinator: at('coordinator'),
    sandboxProvider: isSandbox ? at('sandboxProvider') : null,
    webhookReceiver: receivesWebhooks ? at('webhookReceiver') : null,
    console,
    processes: [...processes.definitions.keys()],
    [Symbol.asyncDispose]: () => services.disposeAsync(),
  }
}

/**
 * Logs a warning that names the processes that are started by changes in the books of companies. Without webhooks,
 * these processes get the changes only from the daily change feed.
 */
function warnOfChanges(
  { definitions }: Awaited<ReturnType<typeof configure>>['processes'],
  logger: Logger,
): void {
  const waiting = [...definitions.values()].filter(({ on }) => on.length > 0)
  if (waiting.length > 0)
    logger.warn(
      {
        processes: waiting.map(({ name }) => name),
        remedy:
          'set WEBHOOK_VERIFIER_TOKENS to the verifier token of the webhooks page of the app, then restart',
      },
      'webhooks are not received: these processes get changes from the daily change feed only',
    )
}

/** Returns whether a setting is present, directly or as a file. */
const isSet = (env: Environment, name: string): boolean => Boolean(env[name] || env[`${name}_FILE`])

function makeFolder(dataDir: string): void {
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 })
    accessSync(dataDir, constants.W_OK)
  } catch (error) {
    throw new StartupError(`DATA_DIR: ${dataDir} cannot be used as a folder (${reasonOf(error)})`)
  }
}

async function unusedPorts(): Promise<Readonly<Record<ServiceName, number>>> {
  const ports = await freePorts(SERVICES.length)
  return Object.fromEntries(SERVICES.map((name, index) => [name, ports[index]])) as Record<
    ServiceName,
    number
  >
}

/** Resolves when every service is ready. @throws {Error} names a service that is not ready after `deadlineMs`. */
export async function hostReady(host: Host, deadlineMs = 20_000): Promise<void> {
  const deadline = Date.now() + deadlineMs
  const { tokenService, accountingGateway, coordinator, demoApi, webhookReceiver } = host
  for (const url of [tokenService, accountingGateway, coordinator, demoApi, webhookReceiver]) {
    if (url === null) continue
    for (;;) {
      const response = await fetch(`${url}/health/ready`)
      const report = await response.text()
      if (response.ok) break
      if (Date.now() > deadline) throw new Error(`${url} is not ready: ${report}`)
      await new Promise((done) => setTimeout(done, 20))
    }
  }
}
