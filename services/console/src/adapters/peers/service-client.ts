import { parseJson } from '@integration-host/shared/json'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { z } from 'zod'

/** A response that is not the expected one. The message contains no body. */
export class PeerFailed extends Error {
  override readonly name = 'PeerFailed'
  /** The HTTP status; `null` if there was no response. */
  readonly status: number | null

  constructor(message: string, status: number | null, options?: ErrorOptions) {
    super(message, options)
    this.status = status
  }
}

export interface ServiceClient {
  /**
   * Reads a resource of the service. Members that `schema` does not know are dropped.
   *
   * @throws {PeerFailed} the service does not respond within the deadline, or not with 200 and the expected body.
   */
  read<Schema extends z.ZodType>(path: string, schema: Schema): Promise<z.output<Schema>>
  /** Opens an endless response, such as the event stream. `signal` closes it. */
  open(
    path: string,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Response>
}

const READ_DEADLINE_MS = 5_000

/** Returns a client that presents the console's key. `url` has no trailing slash. */
export function createServiceClient(url: string, key: Secret): ServiceClient {
  const authorization = () => ({ Authorization: `Bearer ${key.reveal()}` })
  return {
    async read(path, schema) {
      const response = await fetchOf(url + path, {
        headers: authorization(),
        redirect: 'manual',
        signal: AbortSignal.timeout(READ_DEADLINE_MS),
      })
      const text = await response.text()
      if (response.status !== 200)
        throw new PeerFailed(`status ${response.status}`, response.status)
      const parsed = schema.safeParse(parseJson(text))
      if (!parsed.success) throw new PeerFailed('the response has another form', 200)
      return parsed.data
    },
    async open(path, headers, signal) {
      const response = await fetchOf(url + path, {
        headers: { ...authorization(), ...headers },
        redirect: 'manual',
        signal,
      })
      if (response.status === 200) return response
      await response.body?.cancel()
      throw new PeerFailed(`status ${response.status}`, response.status)
    },
  }
}

async function fetchOf(url: string, options: RequestInit): Promise<Response> {
  try {
    return await fetch(url, options)
  } catch (error) {
    throw new PeerFailed(reasonOfFetch(error), null, { cause: error })
  }
}

/** Returns the short reason why a request got no response, such as `ECONNREFUSED`. */
export function reasonOfFetch(error: unknown): string {
  const { name, cause } = error as { readonly name?: string; readonly cause?: { code?: string } }
  if (name === 'TimeoutError') return 'no response in time'
  return cause?.code ?? 'no response'
}
