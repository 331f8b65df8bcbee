/**
 * The client of the Integration Host, for browsers and Node: `integration-host/client`. It needs nothing but `fetch`. Its types
 * are those of the schemas from which the services generate their OpenAPI documents.
 */
import { type Connection, sendWithAttempts } from './attempts.ts'
import { type CompanyClient, createCompanyClient } from './company.ts'
import { serviceProblem, unexpectedResponse } from './problem.ts'
import {
  type ApiRequest,
  createProcessClient,
  type JsonValue,
  type ProcessClient,
  type RunDeps,
} from './run.ts'
import { createRunEvents } from './run-events.ts'

export type { CompanyClient } from './company.ts'
export {
  type ClientProblem,
  hasProblem,
  type Problem,
  ProblemError,
  type RunDetail,
  type ServiceProblem,
} from './problem.ts'
export type {
  ActOptions,
  JsonValue,
  ProcessClient,
  QueueOptions,
  ReplayOptions,
  RequestOptions,
  Run,
  RunClient,
} from './run.ts'

export interface ClientOptions {
  /** The address of the coordinator, such as `http://127.0.0.1:7219`. */
  readonly coordinator: string
  /** The address of the gateway. `company()` needs it. */
  readonly gateway?: string
  /** A service key, with the scopes of what the client does. Never ship one to a public page. */
  readonly key: string
  /**
   * `intuit` if the gateway has `PROVIDER_PROFILE=intuit`, its default: a POST without a response is sent again from the first one
   * on. Without this option, that begins after a response with `X-RequestId` has shown that the provider recognises a repetition.
   */
  readonly provider?: 'intuit'
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch
  /** How often a request that may be repeated is sent at most. Default: 3. */
  readonly attempts?: number
  /** The pause before the second attempt, in milliseconds; it doubles with every further one. Default: 500. */
  readonly pauseMs?: number
  /** After this time without a response, an attempt has failed, in milliseconds. Default: 60,000. */
  readonly timeoutMs?: number
  /** The time between two reads of a run while its events cannot be read, in milliseconds. Default: 1,000. */
  readonly pollMs?: number
}

export interface Client {
  /** Returns the transactions of a process. `Input` is the type of its initial data. Sends nothing. */
  process<Input = JsonValue>(name: string): ProcessClient<Input>
  /** Returns a company. Sends nothing. */
  company(realm: string): CompanyClient
}

/** The coordinator writes a comment to an idle stream every 15 s. */
const IDLE_MS = 45_000
/** A run is read now and then although no event arrives, in case that an event was lost between two coordinators. */
const REREAD_MS = 30_000

/**
 * Creates a client. It sends nothing until it is used, and holds connections only while something waits.
 *
 * @throws {TypeError} if an address or the key has a form that no request could use. The message shows neither.
 */
export function createClient(options: ClientOptions): Client {
  const { attempts = 3, pauseMs = 500, timeoutMs = 60_000, pollMs = 1_000, provider } = options
  const coordinator = baseOf('coordinator', options.coordinator)
  const gateway = options.gateway === undefined ? null : baseOf('gateway', options.gateway)
  // `fetch` would put the key into the message of its error.
  if (!/^[\x21-\x7e]+$/.test(options.key)) throw new TypeError('key is not a service key')
  const connection: Connection = {
    // Browsers call `fetch` only as a method of the global object.
    fetch: options.fetch ?? ((input, init) => fetch(input, init)),
    key: options.key,
    attempts,
    pauseMs,
    timeoutMs,
  }
  const headers = { Accept: 'application/json', Authorization: `Bearer ${options.key}` }
  const posts = { areRecognised: provider === 'intuit' }

  async function request({ method, path, body, isRepeatable, signal }: ApiRequest) {
    let text = ''
    const response = await sendWithAttempts(connection, {
      async send(attemptSignal) {
        const sent = await connection.fetch(coordinator + path, {
          method,
          redirect: 'error',
          signal: attemptSignal,
          headers: {
            ...headers,
            ...(body !== undefined && { 'Content-Type': 'application/json' }),
          },
          ...(body !== undefined && { body: JSON.stringify(body) }),
        })
        text = await sent.clone().text()
        return sent
      },
      isRepeatable: () => isRepeatable,
      signal,
    })
    const result = response.ok ? parse(text) : undefined
    if (result === undefined) throw serviceProblem(response, text) ?? unexpectedResponse(response)
    return result
  }

  /** The dependencies of a process. All its clients share one stream. */
  const processes = new Map<string, RunDeps>()
  const depsOf = (name: string): RunDeps => {
    const known = processes.get(name)
    if (known !== undefined) return known
    const events = createRunEvents({
      pollMs,
      idleMs: IDLE_MS,
      async open(lastEventId, signal) {
        const url = `${coordinator}/events?process=${encodeURIComponent(name)}`
        const response = await connection.fetch(url, {
          redirect: 'error',
          cache: 'no-store',
          signal,
          headers: {
            ...headers,
            Accept: 'text/event-stream',
            ...(lastEventId !== null && { 'Last-Event-ID': lastEventId }),
          },
        })
        if (response.headers.get('Content-Type')?.startsWith('text/event-stream')) return response
        throw serviceProblem(response, await response.text()) ?? unexpectedResponse(response)
      },
    })
    const deps = { request, events, pollMs, rereadMs: REREAD_MS }
    processes.set(name, deps)
    return deps
  }

  return {
    process: <Input>(name: string) => createProcessClient<Input>(name, depsOf(name)),
    company(realm) {
      if (gateway === null) throw new TypeError('company() needs the option gateway')
      return createCompanyClient(realm, { ...connection, gateway, posts })
    },
  }
}

/** Returns the address without a slash at its end. */
function baseOf(option: string, address: string): string {
  const url = URL.canParse(address) ? new URL(address) : null
  const isUsable =
    url !== null &&
    /^https?:$/.test(url.protocol) &&
    `${url.username}${url.password}${url.search}${url.hash}` === ''
  if (!isUsable) throw new TypeError(`${option} must be an http(s) address without credentials`)
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
