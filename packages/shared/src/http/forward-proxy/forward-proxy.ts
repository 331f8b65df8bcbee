/**
 * Chooses the forward proxy of a request by the settings `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`. Only requests that
 * leave the installation use it. Requests among the services are sent by clients that know no proxy.
 */
import { BlockList, isIP, isIPv4 } from 'node:net'
import { z } from 'zod'
import type { Logger } from '../../observability/logger.ts'
import { Secret } from '../../secrets/secret.ts'
import { isLoopback } from '../origin-guard.ts'

export interface ForwardProxy {
  /** Host and port, for example for a log. */
  readonly address: string
  /** The host name or IP address, without the brackets of an IPv6 address. */
  readonly host: string
  readonly port: number
  /** Whether the connection to the proxy itself uses TLS. */
  readonly isTls: boolean
  /** The value of the header `Proxy-Authorization`; `null` if the URL of the proxy has no credentials. */
  readonly authorization: Secret | null
}

/** Returns the forward proxy for requests to a URL; `null` if they are sent directly. */
export type ProxyFor = (url: URL) => ForwardProxy | null

/** Sends every request directly. */
export const withoutProxy: ProxyFor = () => null

const NOT_USABLE = 'must be a URL like http://user:password@proxy.example:3128'

const proxyUrl = () =>
  z.string().transform((value, context) => {
    const proxy = forwardProxyOf(value)
    if (proxy !== null) return proxy
    context.addIssue({ code: 'custom', message: NOT_USABLE })
    return z.NEVER
  })

function forwardProxyOf(value: string): ForwardProxy | null {
  if (!URL.canParse(value)) return null
  const { protocol, hostname, port, username, password, pathname, search, hash } = new URL(value)
  if ((protocol !== 'http:' && protocol !== 'https:') || `${pathname}${search}${hash}` !== '/')
    return null
  const isTls = protocol === 'https:'
  const used = Number(port || (isTls ? 443 : 80))
  try {
    const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
    return {
      address: `${hostname}:${used}`,
      host: withoutBrackets(hostname),
      port: used,
      isTls,
      authorization:
        credentials === ':'
          ? null
          : new Secret(`Basic ${Buffer.from(credentials).toString('base64')}`),
    }
  } catch {
    return null
  }
}

/** The settings of a service that sends requests to other parties. `readSettings` also reads them in lower case. */
export const forwardProxySettings = () => ({
  HTTPS_PROXY: proxyUrl().optional(),
  HTTP_PROXY: proxyUrl().optional(),
  NO_PROXY: z.string().default(''),
})

export interface ForwardProxySettings {
  readonly HTTPS_PROXY?: ForwardProxy | undefined
  readonly HTTP_PROXY?: ForwardProxy | undefined
  readonly NO_PROXY: string
}

/**
 * Returns the function that chooses the proxy. Requests to the loopback interface and to the origins of `ownUrls`, which
 * are the services of this installation, are always sent directly.
 */
export function chooseProxy(
  { HTTPS_PROXY, HTTP_PROXY, NO_PROXY }: ForwardProxySettings,
  ownUrls: readonly string[] = [],
): ProxyFor {
  const ownOrigins = new Set(ownUrls.map((url) => new URL(url).origin))
  const isExempt = exemptions(NO_PROXY)
  return (url) => {
    const proxy = url.protocol === 'https:' ? HTTPS_PROXY : HTTP_PROXY
    if (proxy === undefined || isLoopback(url.hostname) || ownOrigins.has(url.origin)) return null
    return isExempt(url) ? null : proxy
  }
}

/** Logs which proxies are used, without their credentials. */
export function logForwardProxies(
  { HTTPS_PROXY, HTTP_PROXY, NO_PROXY }: ForwardProxySettings,
  logger: Logger,
): void {
  if (HTTPS_PROXY === undefined && HTTP_PROXY === undefined) return
  logger.info(
    { https: HTTPS_PROXY?.address ?? null, http: HTTP_PROXY?.address ?? null, except: NO_PROXY },
    'requests to other parties are sent through a forward proxy',
  )
}

/**
 * Parses `NO_PROXY` by the rules that Node documents for its own support of forward proxies
 * (https://nodejs.org/docs/latest-v24.x/api/http.html#built-in-proxy-support).
 */
function exemptions(list: string): (url: URL) => boolean {
  const entries = list
    .split(',')
    .map((entry) => entry.trim().toLowerCase())
    .filter((entry) => entry !== '')
    .map(exemption)
  return (url) => {
    const host = withoutBrackets(url.hostname)
    const port = url.port || (url.protocol === 'https:' ? '443' : '80')
    return entries.some((isExempt) => isExempt(host, port))
  }
}

type Exemption = (host: string, port: string) => boolean

function exemption(entry: string): Exemption {
  if (entry === '*') return () => true
  const [, first = '', last = ''] = /^([\d.]+)-([\d.]+)$/.exec(entry) ?? []
  if (isIPv4(first) && isIPv4(last)) return within(first, last)
  if (isIP(withoutBrackets(entry)) !== 0) return named(withoutBrackets(entry))
  const [, name = entry, port] = /^(.*):(\d{1,5})$/.exec(entry) ?? []
  const matches = named(withoutBrackets(name))
  return (host, used) => matches(host, used) && (port === undefined || port === used)
}

/** Matches an IP address or host name. A name that begins with `.` or `*.` also matches all names below it. */
function named(name: string): Exemption {
  const [, suffix] = /^\*?\.(.+)$/.exec(name) ?? []
  if (suffix === undefined) return (host) => host === name
  return (host) => host.endsWith(`.${suffix}`) || (host === suffix && name.startsWith('.'))
}

function within(first: string, last: string): Exemption {
  const range = new BlockList()
  try {
    range.addRange(first, last)
  } catch {
    return () => false // the first address is above the last
  }
  return (host) => isIPv4(host) && range.check(host)
}

const withoutBrackets = (hostname: string): string => hostname.replace(/^\[|\]$/g, '')

/**
 * Makes Node's own support of forward proxies (NODE_USE_ENV_PROXY, `--use-env-proxy`) ineffective in this OS process.
 * It would send requests among the services, with their keys, through the proxy. Requests to other parties use the
 * proxy without it.
 */
export function disableNodeProxy(): void {
  // An import of node:http would also load Node's WebSocket, which takes memory.
  const { globalAgent, setGlobalProxyFromEnv } = process.getBuiltinModule('node:http')
  // Node's documentation names the options of an agent, its types do not.
  const { options } = globalAgent as unknown as {
    readonly options: { readonly proxyEnv?: unknown }
  }
  if (options.proxyEnv === undefined) return
  // Node has no function that switches its support off. With these values it exempts every host. The address is never
  // used.
  const unused = 'http://127.0.0.1:9'
  setGlobalProxyFromEnv({ http_proxy: unused, https_proxy: unused, no_proxy: '*' })
}
