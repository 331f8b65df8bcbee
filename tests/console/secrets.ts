/** Checks that no browser has received a secret. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A text that no browser may receive, or a pattern of such texts, by the name that a failure shows. */
export type Secrets = Readonly<Record<string, string | RegExp>>

export interface SentTexts extends Disposable {
  /** Returns the bodies of all responses so far. The event stream is included with all frames that were sent. */
  all(): readonly string[]
}

/**
 * Records what the server at `url` sends. The server must run in this process. A browser discards a response when its
 * page is closed or opens another address, and never ends the event stream, so the browser cannot be asked instead. The
 * files of the browser program are left out, because they are compressed.
 */
export function recordSentTexts(url: string): SentTexts {
  const port = Number(new URL(url).port)
  const responses: string[][] = []
  const onRequest = (message: unknown): void => {
    const { server, request, response } = message as {
      readonly server: Server
      readonly request: { readonly url?: string }
      readonly response: ServerResponse
    }
    if ((server.address() as AddressInfo | null)?.port !== port) return
    if (request.url?.startsWith('/assets/') === true) return
    const parts: string[] = []
    responses.push(parts)
    for (const method of ['write', 'end'] as const) {
      const send = response[method].bind(response) as (...values: unknown[]) => never
      response[method] = (...values: unknown[]): never => {
        const [part] = values
        if (typeof part === 'string') parts.push(part)
        else if (part instanceof Uint8Array) parts.push(Buffer.from(part).toString())
        return send(...values)
      }
    }
  }
  subscribe('http.server.request.start', onRequest)
  return {
    all: () => responses.map((parts) => parts.join('')),
    [Symbol.dispose]: () => void unsubscribe('http.server.request.start', onRequest),
  }
}

/**
 * Fails if one of the texts contains a secret.
 *
 * @throws {Error} names the secret. Also thrown if the response is missing that every sign-in page receives.
 */
export function expectNoSecrets(texts: readonly string[], secrets: Secrets): void {
  if (!isIn(texts, SIGN_IN_OPTIONS)) throw new Error('the responses of the console are missing')
  for (const [name, secret] of Object.entries(secrets))
    if (isIn(texts, secret)) throw new Error(`a browser received the secret ${name}`)
}

/** A part of the response of `GET /api/sign-in`. */
const SIGN_IN_OPTIONS = '"Ways":'

const isIn = (texts: readonly string[], secret: string | RegExp): boolean =>
  texts.some((text) => (typeof secret === 'string' ? text.includes(secret) : secret.test(text)))
