/**
 * The calls of the load. Some are calls of an application that uses the installation, and other calls check the records
 * of the installation afterwards. The load counts failed calls, so a failed call is returned as a result and not thrown.
 */
import { ProblemError, statusOf } from '@integration-host/client/problem'
import { createService, type Service, type ServiceRequest } from '@integration-host/client/service'
import { TransactionView } from '@integration-host/shared/contracts/transaction'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'

/** The addresses of the services, without a trailing slash, and their service key. */
export interface Installation {
  readonly demoApi: string
  readonly tokenService: string
  readonly accountingGateway: string
  readonly coordinator: string
  readonly sandboxProvider: string
  readonly serviceKey: Secret
}

export interface ClientDeps {
  readonly at: Installation
  /** Aborting this signal ends all calls. An aborted call counts as failed. */
  readonly signal: AbortSignal
  /** The deadline of each call, in milliseconds. */
  readonly deadlineMs: number
}

export type Client = ReturnType<typeof createClient>

/**
 * Returns whether an HTTP status shows that a company's grant has ended. In this case, no later call for the company
 * can succeed.
 */
export const isGone = (status: number | null): boolean => status === 404 || status === 424

/** The business process of the demo, whose transactions are orders. */
const PROCESS = 'OrderProcess'

/** The settings of the sandbox that a round changes. */
interface SandboxSettings {
  readonly rotation: string
  readonly graceSeconds: number
  readonly accessTokenSeconds: number
}

const Integrity = z.object({ violations: z.record(z.string(), z.number()) })
const Counters = z.object({
  realms: z.record(z.string(), z.object({ tokenReuses: z.number() })),
})
const sumOf = (counts: readonly number[]): number => counts.reduce((sum, count) => sum + count, 0)

export function createClient({ at, signal, deadlineMs }: ClientDeps) {
  const serviceAt = (url: string, key: Secret | null = at.serviceKey): Service =>
    createService({ url, key, timeoutMs: deadlineMs })
  const demoApi = serviceAt(at.demoApi, null)
  const tokenService = serviceAt(at.tokenService)
  const gateway = serviceAt(at.accountingGateway)
  const coordinator = serviceAt(at.coordinator)
  const sandbox = serviceAt(at.sandboxProvider, null)

  /** Sends a request, and returns the status of the response; `null` if there was no response. */
  const call = (service: Service, path: string, request?: ServiceRequest): Promise<number | null> =>
    service.send(path, { ...request, signal }).then(
      ({ status }) => status,
      () => null,
    )
  /** Reads a resource; `null` if there was no usable response. */
  const read = <T>(service: Service, path: string, schema: z.ZodType<T>): Promise<T | null> =>
    service.request(path, schema, { signal }).catch(() => null)
  /** Follows a link as a browser does; `null` if there was no response. */
  const follow = (url: string | URL, cookie = ''): Promise<Response | null> =>
    fetch(url, {
      headers: { Cookie: cookie },
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]),
    }).catch(() => null)
  const locationOf = (response: Response | null): URL | null =>
    URL.parse(response?.headers.get('Location') ?? '')

  return {
    /**
     * Queues an order through the demo API. If the same order number is sent again, no second order is queued. Returns
     * the status of the response; `null` if there was no response.
     */
    queueOrder: (number: string) => call(demoApi, `/queue?number=${encodeURIComponent(number)}`),

    /**
     * Requests a company's access token. If the token has expired, token-service refreshes it first. Returns only the
     * status of the response; `null` if there was no response.
     */
    readToken: (realm: string) => call(tokenService, `/credentials/ACC-${realm}/token`),

    /** Reads the company's data through the gateway. Returns the status; `null` if there was no response. */
    readCompany: (realm: string) =>
      call(
        gateway,
        `/v3/company/${realm}/query?query=${encodeURIComponent('select * from CompanyInfo')}`,
      ),

    /** Refreshes a company's credential now. Returns the status; `null` if there was no response. */
    refresh: (realm: string) =>
      call(tokenService, `/credentials/ACC-${realm}/refresh`, { method: 'POST', body: {} }),

    /**
     * Connects a company through the redirects of the authorization, as a browser would. Returns whether token-service
     * reported that the company is connected.
     */
    async connect(realm: string): Promise<boolean> {
      const started = await follow(`${at.tokenService}/authorize`)
      const consent = locationOf(started)
      if (started === null || consent === null) return false
      // The cookie binds the authorization to this browser.
      const cookies = started.headers.getSetCookie().map((header) => header.split(';')[0])
      consent.searchParams.set('sandbox_company', `${realm}:Company ${realm}`)
      const callback = locationOf(await follow(consent))
      return callback !== null && (await follow(callback, cookies.join('; ')))?.status === 302
    },

    /** Returns the latest run of an order; `not found` if there is none, `null` if there was no usable response. */
    async order(number: string): Promise<TransactionView | 'not found' | null> {
      const path = `/processes/${PROCESS}/transactions/${encodeURIComponent(number)}`
      try {
        return await coordinator.request(path, TransactionView, { signal })
      } catch (error) {
        return error instanceof ProblemError && statusOf(error) === 404 ? 'not found' : null
      }
    },

    /** Returns how many of the coordinator's database rows contradict each other; `null` without a usable response. */
    async violations(): Promise<number | null> {
      const integrity = await read(coordinator, '/integrity', Integrity)
      return integrity && sumOf(Object.values(integrity.violations))
    },

    /** Changes settings of the sandbox provider. Returns whether the provider has accepted them. */
    async changeSandbox(body: Partial<SandboxSettings>): Promise<boolean> {
      const status = await call(sandbox, '/sandbox/settings', { method: 'PUT', body })
      return status !== null && status < 300
    },

    /**
     * Returns how often a client presented a refresh token that had already been rotated; `null` if there was no
     * response.
     */
    async tokenReuses(): Promise<number | null> {
      const counters = await read(sandbox, '/sandbox/counters', Counters)
      return counters && sumOf(Object.values(counters.realms).map(({ tokenReuses }) => tokenReuses))
    },
  }
}
