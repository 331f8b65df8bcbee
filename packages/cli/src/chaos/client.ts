/**
 * The calls of a chaos run. Some are calls of an application that uses the installation, and other calls check the
 * records of the installation afterwards. A chaos run counts failed calls, so a failed call is returned as a result and
 * not thrown.
 */
import { TransactionView } from '@integration-host/shared/contracts/transaction'
import { parseJsonAs, SERVICE_LIMITS } from '@integration-host/shared/json'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'

/** The addresses of the services, without a trailing slash, and their service key. */
export interface Installation {
  readonly demoApi: string
  readonly tokenService: string
  readonly accountingGateway: string
  readonly coordinator: string
  readonly serviceKey: Secret
}

/** A response whose body was read completely. */
interface Reply {
  readonly status: number
  readonly headers: Headers
  readonly body: string
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

/** The settings of the sandbox that a chaos run changes. */
const SandboxSettings = z.object({
  personality: z.string(),
  rotation: z.string(),
  graceSeconds: z.number(),
  accessTokenSeconds: z.number(),
})
export type SandboxSettings = z.output<typeof SandboxSettings>

const CredentialPage = z.object({ items: z.array(z.object({ Name: z.string() })) })
const Integrity = z.object({ violations: z.record(z.string(), z.number()) })
const Counters = z.object({
  realms: z.record(z.string(), z.object({ tokenReuses: z.number() })),
})

export function createClient({ at, signal, deadlineMs }: ClientDeps) {
  const keyed = { Authorization: `Bearer ${at.serviceKey.reveal()}` }
  const json = { 'Content-Type': 'application/json' }
  const credentialUrl = (realm: string): string => `${at.tokenService}/credentials/ACC-${realm}`

  /** Sends a request and returns the response; `null` if no complete response arrived before the deadline. */
  async function send(url: string, init: RequestInit = {}): Promise<Reply | null> {
    try {
      const response = await fetch(url, {
        ...init,
        redirect: 'manual',
        signal: AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]),
      })
      const { status, headers } = response
      return { status, headers, body: await response.text() }
    } catch {
      return null
    }
  }
  const isOk = (reply: Reply | null): boolean => reply !== null && reply.status < 300

  /**
   * Starts an authorization as a browser does. Returns the address of the provider's consent page and the cookie that
   * binds the authorization to this browser; `null` if token-service did not redirect.
   */
  async function startAuthorization(): Promise<{ consent: URL; cookie: string } | null> {
    const started = await send(`${at.tokenService}/authorize`)
    const location = started?.headers.get('Location') ?? ''
    if (started === null || !URL.canParse(location)) return null
    const cookies = started.headers.getSetCookie().map((header) => header.split(';')[0])
    return { consent: new URL(location), cookie: cookies.join('; ') }
  }

  return {
    /**
     * Queues an order through the demo API. If the same order number is sent again, no second order is queued. Returns
     * the status of the response; `null` if there was no response.
     */
    queueOrder: async (number: string): Promise<number | null> =>
      (await send(`${at.demoApi}/queue?number=${encodeURIComponent(number)}`))?.status ?? null,

    /**
     * Requests a company's access token. If the token has expired, token-service refreshes it first. Returns only the
     * status of the response; `null` if there was no response.
     */
    readToken: async (realm: string): Promise<number | null> =>
      (await send(`${credentialUrl(realm)}/token`, { headers: keyed }))?.status ?? null,

    /** Reads the company's data through the gateway. Returns the status; `null` if there was no response. */
    readCompany: async (realm: string): Promise<number | null> => {
      const query = encodeURIComponent('select * from CompanyInfo')
      const url = `${at.accountingGateway}/v3/company/${realm}/query?query=${query}`
      return (await send(url, { headers: keyed }))?.status ?? null
    },

    /** Refreshes a company's credential now. Returns the status; `null` if there was no response. */
    refresh: async (realm: string): Promise<number | null> => {
      const url = `${credentialUrl(realm)}/refresh`
      const init = { method: 'POST', headers: { ...keyed, ...json }, body: '{}' }
      return (await send(url, init))?.status ?? null
    },

    /** Returns up to 500 connected realms that begin with `prefix`; `null` if there was no usable response. */
    realms: async (prefix: string): Promise<readonly string[] | null> => {
      const url = `${at.tokenService}/credentials?limit=500&cursor=ACC-${prefix}`
      const reply = await send(url, { headers: keyed })
      const page =
        reply?.status === 200 ? parseJsonAs(CredentialPage, reply.body, SERVICE_LIMITS) : null
      const realms = page?.items.map(({ Name }) => Name.slice('ACC-'.length))
      return realms?.filter((realm) => realm.startsWith(prefix)) ?? null
    },

    /** Revokes a company's grant and removes its credential. Returns whether the credential is gone. */
    remove: async (realm: string): Promise<boolean> => {
      const reply = await send(credentialUrl(realm), { method: 'DELETE', headers: keyed })
      return isOk(reply) || reply?.status === 404
    },

    /**
     * Connects a company through the redirects of the authorization, as a browser would. Returns whether token-service
     * reported that the company is connected.
     */
    connect: async (realm: string): Promise<boolean> => {
      const started = await startAuthorization()
      if (started === null) return false
      started.consent.searchParams.set('sandbox_company', `${realm}:Chaos ${realm}`)
      const granted = await send(started.consent.href)
      const callback = granted?.headers.get('Location') ?? ''
      if (!URL.canParse(callback)) return false
      const finished = await send(callback, { headers: { Cookie: started.cookie } })
      return finished?.status === 302
    },

    /** Returns the latest run of an order; `not found` if there is none, `null` if there was no usable response. */
    order: async (number: string): Promise<TransactionView | 'not found' | null> => {
      const path = `processes/${PROCESS}/transactions/${encodeURIComponent(number)}`
      const reply = await send(`${at.coordinator}/${path}`, { headers: keyed })
      if (reply?.status === 404) return 'not found'
      return reply?.status === 200 ? parseJsonAs(TransactionView, reply.body, SERVICE_LIMITS) : null
    },

    /** Returns how many of the coordinator's database rows contradict each other; `null` without a usable response. */
    violations: async (): Promise<number | null> => {
      const reply = await send(`${at.coordinator}/integrity`, { headers: keyed })
      const integrity = reply === null ? null : parseJsonAs(Integrity, reply.body, SERVICE_LIMITS)
      return integrity && Object.values(integrity.violations).reduce((sum, count) => sum + count, 0)
    },

    /**
     * Starts an authorization to get the address of the provider's consent page. Returns a client of the sandbox
     * provider at this address. Returns `unreachable` if token-service starts no authorization, and `other provider`
     * if the server at the address is not the sandbox provider.
     */
    sandbox: async (): Promise<Sandbox | 'unreachable' | 'other provider'> => {
      const started = await startAuthorization()
      if (started === null) return 'unreachable'
      const sandbox = createSandbox(started.consent.origin)
      return (await sandbox.settings()) === null ? 'other provider' : sandbox
    },
  }

  function createSandbox(url: string) {
    const settingsUrl = `${url}/sandbox/settings`
    return {
      settings: async (): Promise<SandboxSettings | null> => {
        const reply = await send(settingsUrl)
        return reply?.status === 200
          ? parseJsonAs(SandboxSettings, reply.body, SERVICE_LIMITS)
          : null
      },
      change: async (part: Partial<SandboxSettings>): Promise<boolean> =>
        isOk(await send(settingsUrl, { method: 'PUT', headers: json, body: JSON.stringify(part) })),
      /**
       * Returns how often a client presented a refresh token that had already been rotated; `null` if there was no
       * response.
       */
      tokenReuses: async (): Promise<number | null> => {
        const reply = await send(`${url}/sandbox/counters`)
        const counters = reply === null ? null : parseJsonAs(Counters, reply.body, SERVICE_LIMITS)
        if (counters === null) return null
        return Object.values(counters.realms).reduce((sum, { tokenReuses }) => sum + tokenReuses, 0)
      },
    }
  }
}

/** The control routes of the sandbox provider. */
export interface Sandbox {
  settings(): Promise<SandboxSettings | null>
  change(part: Partial<SandboxSettings>): Promise<boolean>
  tokenReuses(): Promise<number | null>
}
