/**
 * Sends webhooks to receivers. A request must not reach a service inside the private network (server-side request
 * forgery), although other parties control the DNS records of the receivers.
 *
 * Each call resolves the host name itself and opens its own connection to the address that was checked. A name that
 * resolves to a different address a moment later therefore has no effect. A forward proxy is asked to connect to that
 * address too, in place of the host name, because the proxy may be able to reach private addresses.
 */
import { lookup as dnsLookup, type LookupAddress, type LookupOptions } from 'node:dns'
import {
  type ClientRequest,
  type IncomingMessage,
  request as requestHttp,
  type RequestOptions,
} from 'node:http'
import { request as requestHttps } from 'node:https'
import { isIP, type LookupFunction, type Socket } from 'node:net'
import {
  type ProxyFor,
  withoutProxy,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { type ConnectSocket, tunnelTo } from '@integration-host/shared/http/forward-proxy/tunnel'
import { parseRetryAfter } from '@integration-host/shared/http/header-list'
import { reasonOf } from '@integration-host/shared/observability/health'
import type { PostResult, PostWebhook } from '../../webhook/deliver.ts'
import { isPrivateAddress, isPrivateLiteral } from './private-addresses.ts'

export interface WebhookPostOptions {
  /** The time limit from the start of a call until the headers of the response have arrived. */
  readonly timeoutMs?: number
  readonly resolve?: typeof dnsLookup
  readonly proxyFor?: ProxyFor
}

type WebhookRequest = Parameters<PostWebhook>[0]

const TIMEOUT_MS = 15_000
/** The limits for reading a response body, in bytes and in time. The content of the body is ignored. */
const MAX_BODY_BYTES = 4_096
const BODY_MS = 1_000
const MAX_HEADER_BYTES = 8_192

/** The error for a host name that resolves to a private address. */
class PrivateAddress extends Error {}

export function createWebhookPost({
  timeoutMs = TIMEOUT_MS,
  resolve: resolveName = dnsLookup,
  proxyFor = withoutProxy,
}: WebhookPostOptions = {}): PostWebhook {
  /** Resolves a host name. Fails if at least one of its addresses is private, even if others are public. */
  const publicAddresses = (
    hostname: string,
    options: LookupOptions,
    callback: (error: Error | null, addresses: LookupAddress[]) => void,
  ): void =>
    resolveName(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, [])
      const isPublic = !addresses.some(({ address }) => isPrivateAddress(address))
      return isPublic ? callback(null, addresses) : callback(new PrivateAddress(), [])
    })
  const publicOnly: LookupFunction = (hostname, options, callback) =>
    publicAddresses(hostname, options, (error, addresses) => {
      if (error !== null) return callback(error, '')
      if (options.all === true) return callback(null, addresses)
      const [{ address, family } = { address: '', family: 4 }] = addresses
      callback(null, address, family)
    })

  /** Opens a tunnel to the checked address of a receiver; a host that is allowed by its name is resolved by the proxy. */
  async function openTunnel(
    connect: ConnectSocket,
    { url, isAllowedByName }: WebhookRequest,
    signal: AbortSignal,
  ): Promise<Socket> {
    if (isAllowedByName || isIP(hostOf(url)) !== 0) return connect({ timeoutMs, signal })
    const address = await new Promise<string>((resolve, reject) => {
      publicAddresses(url.hostname, {}, (error, [first]) => {
        if (error === null) resolve(first?.address ?? '')
        else reject(error)
      })
    })
    return connect({ timeoutMs, signal, address })
  }

  return (request) =>
    new Promise((resolve) => {
      const { url, isAllowedByName, headers, body, abort } = request
      // An IP address is checked here, because Node calls `lookup` only for host names.
      if (!isAllowedByName && isPrivateLiteral(hostOf(url)))
        return resolve({ kind: 'private_address' })
      if (abort.areNewCallsBlocked) return resolve({ kind: 'aborted' })
      const bytes = Buffer.from(body)
      const ended = new AbortController()
      let call: ClientRequest | null = null
      let isSent = false
      const settle = (result: PostResult): void => {
        clearTimeout(timer)
        abort.unwatch(onAbort)
        resolve(result)
      }
      const end = (result: PostResult): void => {
        settle(result)
        ended.abort()
        call?.destroy()
      }
      const onAbort = (): void => {
        if (abort.reason !== null || !isSent) end({ kind: 'aborted' })
      }
      const timer = setTimeout(
        () => end({ kind: 'failed', reason: 'ETIMEDOUT', isSent }),
        timeoutMs,
      )
      abort.watch(onAbort)
      const onError = (error: unknown): void =>
        end(
          error instanceof PrivateAddress
            ? { kind: 'private_address' }
            : { kind: 'failed', reason: reasonOf(error), isSent },
        )
      const send = (connection: RequestOptions): ClientRequest => {
        const open = url.protocol === 'https:' ? requestHttps : requestHttp
        const outgoing = open(url, {
          method: 'POST',
          headers: {
            ...headers,
            'accept-encoding': 'identity',
            'content-length': String(bytes.length),
            connection: 'close',
          },
          maxHeaderSize: MAX_HEADER_BYTES,
          ...connection,
        })
        outgoing.once('response', (response) => {
          const { statusCode: status = 0, headers: received } = response
          const retryAfterMs = parseRetryAfter(received['retry-after'] ?? null, Date.now())
          settle({ kind: 'responded', status, retryAfterMs })
          discard(response)
        })
        outgoing.on('error', onError)
        return outgoing.end(bytes)
      }

      const connect = tunnelTo(proxyFor, url)
      if (connect === undefined) {
        call = send({ agent: false, ...(!isAllowedByName && { lookup: publicOnly }) })
        call.once('socket', (socket) =>
          socket.once(
            url.protocol === 'https:' ? 'secureConnect' : 'connect',
            () => (isSent = true),
          ),
        )
      } else
        openTunnel(connect, request, ended.signal).then((tunnel) => {
          // The call may have ended while the tunnel was being opened.
          if (ended.signal.aborted) tunnel.destroy()
          else {
            isSent = true
            call = send({ createConnection: () => tunnel })
          }
        }, onError)
    })
}

const hostOf = ({ hostname }: URL): string => hostname.replace(/^\[|\]$/g, '')

/** Reads the start of a body, so that most receivers can finish their response, and then closes the connection. */
function discard(response: IncomingMessage): void {
  let length = 0
  const timer = setTimeout(() => response.destroy(), BODY_MS)
  response.on('data', (chunk: Buffer) => {
    length += chunk.length
    if (length > MAX_BODY_BYTES) response.destroy()
  })
  response.on('error', () => {})
  response.once('close', () => clearTimeout(timer))
}
