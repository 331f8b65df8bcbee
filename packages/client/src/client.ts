/**
 * The client of the Integration Host for browsers and Node: `integration-host/client`. It needs only `fetch`. Its types
 * come from the schemas from which the services generate their OpenAPI documents.
 *
 * @module integration-host/client
 */
import type {
  EntryPage,
  EntryState,
  EntryView,
  CompanyPauseView,
} from '@integration-host/shared/contracts/company'
import { type CompanyClient, createCompanyClient } from './company.ts'
import {
  type ActOptions,
  createProcessClient,
  type JsonValue,
  type ProcessClient,
  reasonMember,
  type RunDeps,
} from './run.ts'
import { createRunEvents } from './run-events.ts'
import { createService, type Schema } from './service.ts'

export type { CompanyClient } from './company.ts'
export {
  type ClientProblem,
  hasProblem,
  type Problem,
  type ProblemCode,
  ProblemError,
  type ProblemOf,
  type RunDetail,
  type ServiceProblem,
} from './problem.ts'
export type {
  ActOptions,
  Child,
  ChildrenOptions,
  DecisionLink,
  JsonValue,
  LinkOptions,
  ProcessClient,
  QueueOptions,
  ReplayOptions,
  RequestOptions,
  Run,
  RunClient,
  Signal,
  SignalOptions,
} from './run.ts'

/** The options of {@link createClient}. */
export interface ClientOptions {
  /** The address of the coordinator, such as `http://127.0.0.1:7219`. */
  readonly coordinator: string
  /** The address of the gateway. Only calls of `company()` need this address. */
  readonly gateway?: string
  /**
   * A service key with the scopes that the client's requests need. A public web page must not contain a service key.
   */
  readonly key: string
  /**
   * Set this option to `intuit` if the gateway has `PROVIDER_PROFILE=intuit`, which is the gateway's default. This
   * provider recognises a repeated POST, so the client repeats each POST that got no response. Without this option, the
   * client repeats a POST only if an earlier response had the header `X-RequestId`. The gateway adds this header for a
   * provider that recognises repeated POSTs.
   */
  readonly provider?: 'intuit'
  /** The function that sends requests; by default the global `fetch`. */
  readonly fetch?: typeof fetch
  /** The maximum number of attempts for a request that may be repeated; 3 by default. */
  readonly attempts?: number
  /** The pause before the second attempt, in milliseconds; 500 by default. It doubles with every further attempt. */
  readonly pauseMs?: number
  /** How long an attempt waits for its response, in milliseconds; 60,000 by default. `waitSeconds` is added to it. */
  readonly timeoutMs?: number
  /** The time between two reads of a run while its event stream is unavailable, in milliseconds; 1,000 by default. */
  readonly pollMs?: number
}

/** The initial data that clients pass to a process, by the type of its definition. Another type is that of the data. */
export type InputOf<Of> = [Of] extends [{ readonly '~accepts': infer Accepts }]
  ? unknown extends Accepts
    ? JsonValue
    : Accepts
  : Of

/** A client for one installation of the Integration Host. */
export interface Client {
  /**
   * Returns a client for the transactions of a process, without sending a request. `Of` is the type of its definition, or
   * of the initial data: `process<typeof invoice>('Invoice')` with `import type invoice from './invoice.ts'`.
   */
  process<Of = JsonValue>(name: string): ProcessClient<InputOf<Of>>
  /** Returns a client for the accounting API of a company, without sending a request. */
  company(realm: string): CompanyClient
  /**
   * Pauses a company: its runs start no step until it is resumed. Transactions and events are accepted.
   *
   * @throws {ProblemError} `forbidden` unless the key has `transactions:operate` for the company and all processes, …
   */
  pauseCompany(realm: string, options?: ActOptions): Promise<CompanyPause>
  /** Resumes a company: its waiting runs continue. */
  resumeCompany(realm: string, options?: ActOptions): Promise<CompanyPause>
  /**
   * Yields what runs have written to the books of companies, newest first. An entry matches if it has the value of every
   * member of the filter. Pages are read as they are needed.
   */
  entries(filter?: EntryQuery, options?: { readonly signal?: AbortSignal }): AsyncGenerator<Entry>
}

/** An object that a run has written to the books of a company. */
export interface Entry extends EntryView {}

/** Which entries are read. `id` is the id of the object, `since` a time in ISO 8601. */
export interface EntryQuery {
  readonly realm?: string
  readonly entity?: string
  readonly id?: string
  readonly process?: string
  readonly transaction?: string
  readonly state?: EntryState
  readonly since?: string
}

/** Whether a company is paused, since when, by whom and why. */
export interface CompanyPause extends CompanyPauseView {}

/** Accepts every body that is not empty. The client gives the types of this version to the bodies of the services. */
const anyJson: Schema<unknown> = {
  safeParse: (data) =>
    data === undefined || data === null ? { success: false } : { success: true, data },
}
/**
 * How often a run is read even if no event arrives. An event may be missing, because a coordinator that crashes loses
 * the events that it has not published yet.
 */
const REREAD_MS = 30_000

/**
 * Creates a client. It sends requests only in calls of its methods. An event stream is open only while a call of
 * `completed()` waits.
 *
 * @throws {TypeError} if an address or the key has a form that cannot be used. The message contains neither the address
 * nor the key.
 */
export function createClient(options: ClientOptions): Client {
  const { attempts = 3, pauseMs = 500, timeoutMs = 60_000, pollMs = 1_000, provider } = options
  const coordinator = baseOf('coordinator', options.coordinator)
  const gateway = options.gateway === undefined ? null : baseOf('gateway', options.gateway)
  // Without this check, `fetch` would reject the header with an error whose message contains the key.
  if (!/^[\x21-\x7e]+$/.test(options.key)) throw new TypeError('key is not a service key')
  // The `fetch` of a browser must be called as a function of the global object.
  const send: typeof fetch = options.fetch ?? ((input, init) => fetch(input, init))
  const settings = { fetch: send, attempts, pauseMs, timeoutMs }
  const service = createService({
    ...settings,
    url: coordinator,
    key: { reveal: () => options.key },
    redirect: 'error',
  })
  const posts = { areRecognised: provider === 'intuit' }

  const request: RunDeps['request'] = ({ path, waitSeconds = 0, ...one }) => {
    const waitMs = waitSeconds > 0 ? waitSeconds * 1_000 : 0
    return service.request(path, anyJson, {
      ...one,
      timeoutMs: timeoutMs + waitMs,
      ...(waitMs > 0 && { headers: { Prefer: `wait=${waitSeconds}` } }),
    })
  }

  const setPaused = async (
    realm: string,
    action: 'pause' | 'resume',
    { reason, signal }: ActOptions = {},
  ): Promise<CompanyPause> =>
    (await request({
      method: 'POST',
      path: `/realms/${encodeURIComponent(realm)}/${action}`,
      body: reasonMember(reason),
      isRepeatable: true,
      ...(signal && { signal }),
    })) as CompanyPause

  async function* entries(
    filter: EntryQuery = {},
    { signal }: { readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<Entry> {
    const query = new URLSearchParams(
      Object.entries(filter).filter(([, value]) => value !== undefined),
    )
    for (;;) {
      const path = `/entries?${query.toString()}`
      const page = (await request({
        method: 'GET',
        path,
        isRepeatable: true,
        ...(signal && { signal }),
      })) as EntryPage
      yield* page.items
      if (page.next_cursor === null) return
      query.set('cursor', page.next_cursor)
    }
  }

  /** For each business process, the state that all of its clients share. These clients use one event stream. */
  const processes = new Map<string, RunDeps>()
  const depsOf = (name: string): RunDeps => {
    const known = processes.get(name)
    if (known !== undefined) return known
    const events = createRunEvents(service, name, pollMs)
    const deps = { request, events, pollMs, rereadMs: REREAD_MS }
    processes.set(name, deps)
    return deps
  }

  return {
    process: <Input>(name: string) => createProcessClient<Input>(name, depsOf(name)),
    pauseCompany: (realm, act) => setPaused(realm, 'pause', act),
    resumeCompany: (realm, act) => setPaused(realm, 'resume', act),
    entries,
    company(realm) {
      if (gateway === null) throw new TypeError('company() needs the option gateway')
      return createCompanyClient(realm, { ...settings, key: options.key, gateway, posts })
    },
  }
}

/** Returns the address without a trailing slash. */
function baseOf(option: string, address: string): string {
  const url = URL.canParse(address) ? new URL(address) : null
  const isUsable =
    url !== null &&
    /^https?:$/.test(url.protocol) &&
    `${url.username}${url.password}${url.search}${url.hash}` === ''
  if (!isUsable) throw new TypeError(`${option} must be an http(s) address without credentials`)
  return `${url.origin}${url.pathname.replace(/(?<!\/)\/+$/, '')}`
}
