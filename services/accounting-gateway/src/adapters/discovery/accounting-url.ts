import { setTimeout as delay } from 'node:timers/promises'
import { IntegrationError } from '@integration-host/shared/errors'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import { z } from 'zod'
import { HttpFailure } from '@integration-host/shared/http/client/exchange'
import { ask } from '@integration-host/shared/http/client/ask'
import { connectUpstream } from '../http/upstream.ts'

const Document = z.looseObject({
  accounting_url: z.url({ protocol: /^https?$/ }).optional(),
})

const NAMES_NONE =
  'the discovery document names no usable accounting_url, and PROVIDER_PROFILE knows none for it: set ACCOUNTING_URL to the address of the accounting API'
/** How long the start waits for the document before it goes on without. */
const START_TIMEOUT_MS = 800

export interface AccountingUrl extends AsyncDisposable {
  /** @throws {IntegrationError} `provider_unavailable` until it is known. */
  current(): string
}

class NoAccountingUrl extends Error {}

export interface AccountingUrlDeps {
  readonly dependency: Dependency
  /** The address that the profile knows for a document without `accounting_url`. */
  readonly addressOf: ProviderProfile['accounting']['addressOf']
}

/**
 * The address of the accounting API according to the provider's discovery document: its `accounting_url`,
 * else what the profile knows for this document. Fetched with back-off until it is there, then kept. No
 * standard defines such a member, so a document without it from an unknown provider needs a person.
 *
 * @throws {StartupError} the document is there at once and leads to no address.
 */
export async function discoverAccountingUrl(
  discoveryUrl: string,
  { dependency, addressOf }: AccountingUrlDeps,
): Promise<AccountingUrl> {
  const closing = new AbortController()
  let url: string | null = null
  let why = 'the discovery document has not been read yet'

  async function read(): Promise<void> {
    const { origin, pathname } = new URL(discoveryUrl)
    await using connection = connectUpstream(origin)
    const headers = ['Accept', 'application/json']
    const { status, text } = await ask(
      connection.upstream,
      { method: 'GET', path: pathname, headers, body: null },
      { timeoutMs: 5_000, signal: closing.signal },
    )
    if (status !== 200) throw new TypeError(`the discovery document has status ${status}`)
    const document = Document.safeParse(JSON.parse(text))
    const address = document.success
      ? (document.data.accounting_url ?? addressOf(document.data))
      : null
    if (address === null) throw new NoAccountingUrl(NAMES_NONE)
    url = address
    dependency.up()
  }

  async function tryOnce(): Promise<unknown> {
    try {
      await read()
      return null
    } catch (error) {
      if (closing.signal.aborted) return null
      why =
        error instanceof NoAccountingUrl
          ? NAMES_NONE
          : 'the discovery document, which leads to the accounting API, cannot be fetched'
      dependency.down(
        error instanceof NoAccountingUrl
          ? NAMES_NONE
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
        throw new IntegrationError('provider_unavailable', why, { retryAfterSeconds: 5 })
      return url
    },
    async [Symbol.asyncDispose]() {
      closing.abort()
      await trying
    },
  }
}
