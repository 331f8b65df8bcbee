/** Reads the state of the installation from the services. A part that cannot be read keeps its last state. */
import { nameOf } from '@integration-host/shared/contracts/text'
import { ProblemError, statusOf } from '@integration-host/client/problem'
import { ActionPage, type ActionView } from '@integration-host/shared/contracts/operations'
import { type CompanyPauseView, PausedCompanies } from '@integration-host/shared/contracts/company'
import { type AuditEntry, AuditPage } from '@integration-host/shared/contracts/audit'
import {
  CredentialCounts,
  credentialStates,
  CredentialView,
} from '@integration-host/shared/contracts/credential'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { z } from 'zod'
import { isNotable } from '../../view/changes.ts'
import type { ProcessState, RunGroup } from '../../view/installation.ts'
import type { ServiceClient } from './service-client.ts'

const Named = CredentialView.pick({ Label: true, CompanyName: true })
const CredentialPage = z.object({ items: z.array(CredentialView) })
const ProcessList = z.object({
  items: z.array(
    z.object({
      Process: z.string(),
      RequireInternet: z.boolean(),
      Paused: z.boolean(),
      PausedAt: z.iso.datetime().nullable(),
      PausedBy: z.string().nullable(),
      Reason: z.string().nullable(),
      // A coordinator of the release before has none.
      Decisions: z.array(z.object({ Event: z.string() })).default([]),
    }),
  ),
  not_loaded: z.array(z.object({ Process: z.string() })),
})
const Group = z.object({
  Status: z.string(),
  StepName: z.string().nullable(),
  ErrorClass: z.string().nullable(),
  WaitingFor: z.string().nullable().default(null),
  Count: z.int(),
  InDoubt: z.int(),
  FirstEndedAt: z.iso.datetime().nullable().default(null),
  ProviderError: z.string().nullable().default(null),
})
const Summary = z.object({
  At: z.iso.datetime(),
  Unfinished: z.array(Group),
  EndedBadly: z.array(Group),
})

/**
 * The maximum number of companies that the page Now names. The counts on this page include the companies that are not
 * named.
 */
const MAX_FAULTED = 200
const MAX_CHANGES = 30
/** How long after the connection of a company its name may still be unknown. */
const NAME_READ_MS = 60_000
/** More than the changes, because the entries about reads are left out. */
const MAX_ACTIONS = 100

export interface InstallationReader {
  readCompanies(): Promise<{
    readonly counts: CredentialCounts
    readonly faulted: readonly CredentialView[]
  }>
  readProcesses(): Promise<readonly ProcessState[]>
  readPausedCompanies(): Promise<readonly CompanyPauseView[]>
  /** Returns the newest entries of the action log. */
  readActions(): Promise<readonly ActionView[]>
  /** Returns the newest entries of the audit log, and the names of the companies in them by realm. */
  readAudit(): Promise<{
    readonly audit: readonly AuditEntry[]
    readonly names: Readonly<Record<string, string>>
  }>
}

export function createInstallationReader(
  coordinator: ServiceClient,
  tokenService: ServiceClient,
): InstallationReader {
  async function summaryOf(process: string): Promise<z.output<typeof Summary> | null> {
    try {
      return await coordinator.read(`/processes/${encodeURIComponent(process)}/summary`, Summary)
    } catch (error) {
      // Before its first audit a coordinator responds with 503.
      if (error instanceof ProblemError && statusOf(error) === 503) return null
      throw error
    }
  }

  /** The names of the companies in the newest entries, each with the number of the entry after which it was read. */
  let named = new Map<string, { readonly seq: number; readonly label: string | null }>()

  /**
   * Returns the names of the companies in these entries, by realm. A name is read again only after a new entry about its
   * company, because every change of a label has an entry. A removed company keeps the name that was read last.
   */
  async function namesIn(audit: readonly AuditEntry[]): Promise<Readonly<Record<string, string>>> {
    const latest = new Map(
      audit
        .toReversed()
        .filter((entry) => entry.Name !== '' && isNotable(entry))
        .map((entry) => [entry.Name, entry]),
    )
    const read = await Promise.all(
      [...latest].map(async ([name, { Seq: seq, At }]) => {
        const known = named.get(name)
        // The name at the provider is read shortly after the entry of the connection.
        const isRead =
          typeof known?.label === 'string' || Date.now() - Date.parse(At) > NAME_READ_MS
        if (known?.seq === seq && isRead) return [name, known] as const
        const label = await labelOf(name)
        return [name, { seq, label: label === undefined ? (known?.label ?? null) : label }] as const
      }),
    )
    named = new Map(read)
    return Object.fromEntries(
      read.flatMap(([name, { label }]) => (label === null ? [] : [[realmOf(name), label]])),
    )
  }

  /** Returns the name of a company; `null` if it has none, and `undefined` if the company does not exist. */
  async function labelOf(name: string): Promise<string | null | undefined> {
    try {
      const path = `/credentials/${encodeURIComponent(name)}`
      return nameOf(await tokenService.read(path, Named)) ?? null
    } catch (error) {
      if (error instanceof ProblemError && statusOf(error) === 404) return undefined
      throw error
    }
  }

  return {
    async readCompanies() {
      const counts = await tokenService.read('/credentials/summary', CredentialCounts)
      const isFaulted = credentialStates.some(
        (state) => state !== 'active' && state !== 'expiring' && (counts.States[state] ?? 0) > 0,
      )
      const { items } = isFaulted
        ? await tokenService.read(
            `/credentials?state=must_reconnect,failing&limit=${MAX_FAULTED}`,
            CredentialPage,
          )
        : { items: [] }
      return { counts, faulted: items }
    },
    async readProcesses() {
      const { items, not_loaded } = await coordinator.read('/processes', ProcessList)
      const missing = not_loaded.map(({ Process }) => ({
        Process,
        isLoaded: false,
        RequireInternet: false,
        Paused: false,
        PausedAt: null,
        PausedBy: null,
        Reason: null,
        Decisions: [],
      }))
      const loaded = items.map((process) => ({ ...process, isLoaded: true }))
      return Promise.all(
        [...loaded, ...missing].map(async (process) => {
          const { Process, isLoaded, RequireInternet, Paused, PausedAt, PausedBy, Reason } = process
          const { Decisions } = process
          const summary = await summaryOf(Process)
          return {
            name: Process,
            isLoaded,
            needsInternet: RequireInternet,
            isPaused: Paused,
            pausedAt: PausedAt === null ? null : Date.parse(PausedAt),
            pausedBy: PausedBy,
            reason: Reason,
            decisions: Decisions.map(({ Event }) => Event),
            countedAt: summary === null ? null : Date.parse(summary.At),
            groups:
              summary === null
                ? null
                : [...summary.Unfinished, ...summary.EndedBadly].map((group): RunGroup => ({
                    process: Process,
                    step: group.StepName,
                    status: group.Status,
                    errorClass: group.ErrorClass,
                    providerError: group.ProviderError,
                    waitingFor: group.WaitingFor,
                    count: group.Count,
                    inDoubt: group.InDoubt,
                    endedAt: group.FirstEndedAt === null ? null : Date.parse(group.FirstEndedAt),
                  })),
          }
        }),
      )
    },
    async readPausedCompanies() {
      try {
        return (await coordinator.read('/realms/paused', PausedCompanies)).items
      } catch (error) {
        // A coordinator of the release before does not pause companies.
        if (error instanceof ProblemError && statusOf(error) === 404) return []
        throw error
      }
    },
    async readActions() {
      return (await coordinator.read(`/actions?limit=${MAX_ACTIONS}`, ActionPage)).items
    },
    async readAudit() {
      const { items } = await tokenService.read(`/audit?limit=${MAX_CHANGES}`, AuditPage)
      return { audit: items, names: await namesIn(items) }
    },
  }
}
