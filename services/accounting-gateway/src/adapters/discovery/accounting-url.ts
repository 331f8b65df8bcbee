import { setTimeout as delay } from 'node:timers/promises'
import { IntegrationError } from '@integration-host/shared/errors'
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { tunnelTo } from '@integration-host/shared/http/forward-proxy/tunnel'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import { parseJson } from '@integration-host/shared/json'
import { z } from 'zod'
import { HttpFailure } from '@integration-host/fast-http/exchange'
import { requestText } from '@integration-host/fast-http/request-text'
import { connectUpstream } from '../http/upstream.ts'

const Document = z.looseObject({
  accounting_url: z
    .url({ protocol: /^https?$/ })
    .nullable()
    .optional(),
})

const REMEDY = 'set ACCOUNTING_URL to the address of the accounting API'
const HAS_NONE = `the discovery document contains no accounting_url, and PROVIDER_PROFILE defines none for it: ${REMEDY}`
/**
 * How long the gateway's start may wait for the discovery document. After this time, the gateway listens without the
 * document and continues to fetch it in the background.
 */
const START_TIMEOUT_MS = 800

export interface AccountingUrl extends AsyncDisposable {
  /**
   * Returns the address of the accounting API. @throws {IntegrationError} `provider_unavailable` until the address is
   * known.
   */
  current(): string
}

/**
 * The error for a discovery document without a usable address of the accounting API. The message is for the operator
 * and names the setting to change.
 */
class NoAccountingUrl extends Error {}

export interface AccountingUrlDeps {
  readonly dependency: Dependency
  /**
   * Returns the address of the accounting API that the provider profile defines. It is used if the discovery document
   * has no `accounting_url`.
   */
  readonly addressOf: ProviderProfile['accounting']['addressOf']
  readonly proxyFor: ProxyFor
}

/**
 * Finds the address of the accounting API. This is `accounting_url` of the provider's discovery document or, if the
 * document has none, the address that the provider profile defines. No standard defines `accounting_url`, so for some
 * providers both are missing. An operator then has to set `ACCOUNTING_URL`.
 *
 * The document is fetched with back-off until one fetch succeeds, and never again afterwards.
 *
 * @throws {StartupError} if the document is fetched during the start and contains no usable address.
 */
export async function discoverAccountingUrl(
  discoveryUrl: string,
  { dependency, addressOf, proxyFor }: AccountingUrlDeps,
): Promise<AccountingUrl> {
  const closing = new AbortController()
  let url: string | null = null
  let reason = 'the discovery document has not been read yet'

  async function read(): Promise<void> {
    const { origin, protocol, pathname, search } = new URL(discoveryUrl)
    await using connection = connectUpstream(origin, {
      connect: tunnelTo(proxyFor, new URL(origin)),
    })
    const headers = ['Accept', 'application/json']
    const { status, text } = await requestText(
      connection.upstream,
      { method: 'GET', path: pathname + search, headers, body: null },
      { timeoutMs: 5_000, signal: closing.signal },
    )
    if (status !== 200) throw new TypeError(`the discovery document has status ${status}`)
    const json = parseJson(text)
    if (json === undefined) throw new TypeError('the discovery document is not JSON')
    const document = Document.safeParse(json)
    if (!document.success)
      throw new NoAccountingUrl(`accounting_url of the discovery document is malformed: ${REMEDY}`)
    const address = document.data.accounting_url ?? addressOf(document.data)
    if (address === null) throw new NoAccountingUrl(HAS_NONE)
    // A discovery document that was fetched over TLS must not name an unencrypted address, because the gateway sends
    // bearer tokens to this address.
    if (protocol === 'https:' && new URL(address).protocol !== 'https:')
      throw new NoAccountingUrl(`accounting_url of the discovery document is not https: ${REMEDY}`)
    url = address
    dependency.up()
  }

  async function tryOnce(): Promise<unknown> {
    try {
      await read()
      return null
    } catch (error) {
      if (closing.signal.aborted) return null
      reason =
        error instanceof NoAccountingUrl
          ? error.message
          : 'the discovery document, which leads to the accounting API, cannot be fetched'
      dependency.down(
        error instanceof NoAccountingUrl
          ? error.message
          : reasonOf(error instanceof HttpFailure ? error.cause : error),
      )
      return error
    }
  }

  async function keepTrying(first: Promise<unknown>): Promise<void> {
    await first
    for (let attempt = 1; url === null && !closing.signal.aborted; attempt += 1) {
      const pause = 100 + backoffMs(attempt, { baseMs: 200, capMs: 10_000, random: Math.random() })
      await delay(pause, null, { signal: closing.signal, ref: false }).catch(() => {})
      if (!closing.signal.aborted) await tryOnce()
    }
  }

  const first = tryOnce()
  const trying = keepTrying(first)
  const failure = await Promise.race([first, delay(START_TIMEOUT_MS, null, { ref: false })])
  if (failure instanceof NoAccountingUrl) {
    closing.abort()
    await trying
    throw new StartupError(failure.message)
  }
  return {
    current() {
      if (url === null)
        throw new IntegrationError('provider_unavailable', reason, { retryAfterSeconds: 5 })
      return url
    },
    async [Symbol.asyncDispose]() {
      closing.abort()
      await trying
    },
  }
}
