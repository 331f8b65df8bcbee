/**
 * The credentials of the companies of a test. As in token-service, a credential is refreshed at the sandbox provider
 * when it is due, and the owner of the company gets notices before the grant ends.
 */
import type { TokenSource } from '@integration-host/accounting-gateway/token-cache'
import {
  type CredentialSummary,
  type ExpiryNoticeDays,
  grantTimes,
  refreshDueAt,
} from '@integration-host/token-service/credential'
import type { ConnectedCompanies } from '@integration-host/coordinator/connected-companies'
import { outboxEntryOf } from '@integration-host/token-service/outbox'
import { readTokenResponse } from '@integration-host/token-service/token-response'
import type {
  CredentialEvent,
  CredentialEventKind,
} from '@integration-host/shared/contracts/credential'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { parseJsonObject } from '@integration-host/shared/json'
import type { Clock } from '@integration-host/shared/process/clock'
import { intuit } from '@integration-host/shared/provider-profile/intuit'
import type { Sandbox } from './sandbox.ts'

/** The notice that a company has to be connected again, because a refresh cannot extend its grant. */
export interface ExpiryNotice {
  readonly days: ExpiryNoticeDays
  /** The time of the notice. */
  readonly at: Date
}

export interface CustodyDeps {
  readonly sandbox: Sandbox
  readonly clock: Clock
  readonly publish: (kind: CredentialEventKind, event: CredentialEvent) => Promise<void>
}

interface Stored {
  readonly accessToken: string
  readonly refreshToken: string
  readonly summary: CredentialSummary
  /** Whether the provider has ended the grant. */
  readonly isFaulted: boolean
}

const REFRESH_AHEAD_MS = 600_000
const DAY_MS = 86_400_000

export function createCustody({ sandbox, clock, publish }: CustodyDeps) {
  const credentials = new Map<string, Stored>()
  const notices = new Map<string, ExpiryNotice[]>()

  async function store(
    realm: string,
    kind: 'stored' | 'refreshed',
    form: Readonly<Record<string, string>>,
  ): Promise<Stored> {
    const startedAt = clock.now()
    const known = credentials.get(realm)
    const received = await sandbox.requestTokens(form)
    if (received === 'dropped') throw providerUnavailable()
    const text = await received.text()
    const { status, headers } = received
    const response = readTokenResponse(
      { status, headers, text, cutOff: null, oddities: [] },
      intuit.token,
    )
    if (response === null) {
      if (parseJsonObject(text)?.['error'] !== 'invalid_grant' || known === undefined)
        throw providerUnavailable()
      credentials.set(realm, { ...known, isFaulted: true })
      throw faulted(realm)
    }
    const times = grantTimes(response, startedAt, intuit.grant.idleLimitDays * DAY_MS)
    const before = kind === 'stored' ? null : (known?.summary.expiryNoticeDays ?? null)
    const notice = times.expiryNoticeDays
    const summary: CredentialSummary = {
      ...times,
      label: null,
      tags: {},
      company: null,
      name: credentialName(realm),
      environment: realm,
      version: (known?.summary.version ?? 0) + 1,
      fault: null,
      attempts: 0,
      nextTryAt: null,
    }
    const stored: Stored = {
      accessToken: response.accessToken,
      refreshToken: response.refreshToken ?? known?.refreshToken ?? '',
      summary,
      isFaulted: false,
    }
    credentials.set(realm, stored)
    const isNoticeNew = notice !== null && (before === null || notice < before)
    if (isNoticeNew)
      notices.set(realm, [...(notices.get(realm) ?? []), { days: notice, at: new Date(startedAt) }])
    const context = { at: startedAt, who: 'routine', what: 'refreshed' } as const
    for (const one of outboxEntryOf(summary, context, kind, isNoticeNew).events)
      await publish(one.kind, one.event)
    return stored
  }

  function requireKnown(realm: string): Stored {
    const known = credentials.get(realm)
    if (known !== undefined) return known
    throw new IntegrationError('credential_not_found', `no company ${realm} is connected`)
  }

  /** @throws {IntegrationError} `credential_faulted` or `provider_unavailable` */
  function refresh(realm: string): Promise<Stored> {
    const { refreshToken, isFaulted } = requireKnown(realm)
    if (isFaulted) return Promise.reject(faulted(realm))
    return store(realm, 'refreshed', { grant_type: 'refresh_token', refresh_token: refreshToken })
  }

  return {
    /** The companies for which a schedule starts runs. */
    companies: {
      page: async () => ({
        realms: [...credentials].filter(([, { isFaulted }]) => !isFaulted).map(([realm]) => realm),
        next: null,
      }),
      isConnected: async (realm) => credentials.has(realm),
    } satisfies ConnectedCompanies,
    /** The token source of the gateway. */
    source: {
      async token(realm) {
        const known = requireKnown(realm)
        const { accessToken, summary } =
          clock.now() < known.summary.expiresAt ? known : await refresh(realm)
        return { value: accessToken, expiresAt: summary.expiresAt, version: summary.version }
      },
      async refresh(realm, version) {
        if (requireKnown(realm).summary.version <= version) await refresh(realm)
      },
    } satisfies TokenSource,
    /** Connects a company, or connects it again. */
    async connect(realm: string, name: string): Promise<void> {
      const code = await sandbox.authorize({ realm, name })
      await store(realm, 'stored', { grant_type: 'authorization_code', code })
    },
    noticesOf: (realm: string): readonly ExpiryNotice[] => notices.get(realm) ?? [],
    /** Refreshes the credentials that are due. Resolves with the milliseconds until the next refresh. */
    async refreshDue(): Promise<number> {
      let nextAt = clock.now() + DAY_MS
      for (const [realm, { summary, isFaulted }] of credentials) {
        if (isFaulted) continue
        const dueAt = refreshDueAt(summary, REFRESH_AHEAD_MS)
        if (dueAt > clock.now()) nextAt = Math.min(nextAt, dueAt)
        // After a failed refresh, the next attempt is made a minute later or at the next call of the company.
        else await refresh(realm).catch(() => (nextAt = Math.min(nextAt, clock.now() + 60_000)))
      }
      return nextAt - clock.now()
    },
  }
}

const providerUnavailable = (): IntegrationError =>
  new IntegrationError('provider_unavailable', 'the sandbox provider sent no tokens')

const faulted = (realm: string): IntegrationError =>
  new IntegrationError('credential_faulted', `the credential of the company ${realm} is faulted`)
