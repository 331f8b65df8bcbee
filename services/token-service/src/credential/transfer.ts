/**
 * Transfers credentials to another installation. Two installations must never refresh the same grant, because each
 * rotation can invalidate the refresh token of the other installation.
 *
 * X1  Before the tokens of a credential are exported, its lease is acquired and its fault is set to `transferred`. No
 *     refresh is therefore in flight during the export, and none starts in this installation afterwards.
 * X2  An export can be requested again if its response was lost, because the tokens stay stored while this fault is
 *     set.
 * X3  An import replaces a usable credential, or a newer version of the same grant, only if the caller requests to
 *     overwrite.
 */
import { randomUUID } from 'node:crypto'
import type { ExportDocument, ImportReport } from '@integration-host/shared/contracts/custody'
import { IntegrationError } from '@integration-host/shared/errors'
import { createSemaphore } from '@integration-host/shared/process/limits'
import { type Credential, expiryNotice, type Grant, refreshDueAt } from './credential.ts'
import { type LeasedCredential, notFound, VersionConflict } from './credential-store.ts'
import type { CustodyDeps } from './custody-deps.ts'
import { acquireLease } from './exclusive-lease.ts'
import {
  type DocumentSecret,
  type ExportedCredential,
  openDocument,
  sealDocument,
} from './export-document.ts'
import { faultOf, hasEndedGrant } from './fault.ts'
import type { RefreshRoutine } from './refresh.ts'

export interface TransferDeps extends Pick<
  CustodyDeps,
  'store' | 'owner' | 'refreshAheadMs' | 'now' | 'sleep' | 'notifyOutbox'
> {
  readonly routine: Pick<RefreshRoutine, 'refresh'>
}

export type Transfers = ReturnType<typeof createTransfers>

export function createTransfers(deps: TransferDeps) {
  const { store, now } = deps
  /**
   * Only one document is encrypted or decrypted at a time, because deriving a key from a passphrase needs 128 MiB and
   * occupies one of the four threads that file system and DNS calls also use.
   */
  const documents = createSemaphore(1)

  async function mark(name: string, who: string): Promise<ExportedCredential> {
    const leased = await leaseWithoutIntent(name, who)
    const { lease, credential, refreshToken, idToken, previous } = leased
    const at = now()
    const reason = { body: 'it was exported and is refreshed elsewhere', traceId: null }
    const settled = await store.settle(
      lease,
      {
        attempts: credential.attempts,
        nextTryAt: null,
        fault: faultOf(name, 'transferred', reason, { at, attempts: credential.attempts }),
        isPublished: credential.fault?.Code !== 'transferred',
        keepsIntent: false,
      },
      { at, who, what: 'exported' },
    )
    // The company was reconnected in the meantime, so the new grant is exported instead.
    if (settled === 'lost') return mark(name, who)
    const { environment, label, tags, version, expiresAt, refreshedAt } = credential
    const { idleExpiresAt, hardExpiresAt } = credential
    return {
      name,
      environment,
      label,
      tags: { ...tags },
      version,
      expiresAt,
      refreshedAt,
      idleExpiresAt: Number.isFinite(idleExpiresAt) ? idleExpiresAt : at,
      hardExpiresAt,
      accessToken: credential.accessToken,
      refreshToken,
      idToken,
      previous,
    }
  }

  /**
   * Acquires the lease of a credential (X1). If the outcome of an earlier refresh is unknown, first repeats the
   * refresh until its outcome is known.
   */
  async function leaseWithoutIntent(name: string, who: string): Promise<LeasedCredential> {
    const leased = await acquireLease(name, deps)
    if (leased.intent === null) return leased
    await store.release(leased.lease)
    const goal = { kind: 'newer', version: leased.lease.version, force: true } as const
    const result = await deps.routine.refresh(name, goal, who)
    if (result.kind === 'absent') throw notFound(name)
    if (result.kind === 'deferred')
      throw new IntegrationError('provider_unavailable', `a refresh of ${name} is in doubt`, {
        retryAfterSeconds: result.retryAfterMs / 1_000,
      })
    return leaseWithoutIntent(name, who)
  }

  /**
   * Returns the reason why a credential must not be imported, as a text for the caller (X3); `null` if it may be
   * imported.
   */
  function rejectionReason(here: Credential | null, exported: ExportedCredential): string | null {
    if (here === null) return null
    if (!hasEndedGrant(here.fault)) return `version ${here.version} is usable here`
    return here.version > exported.version
      ? `version ${here.version} is stored here, and the document has ${exported.version}`
      : null
  }

  async function importOne(
    exported: ExportedCredential,
    who: string,
    over: number | null | undefined,
  ): Promise<number> {
    const { version, ...kept } = exported
    const grant: Grant = {
      ...kept,
      expiryNoticeDays: expiryNotice(exported.hardExpiresAt, now()),
    }
    const dueAt = refreshDueAt(grant, deps.refreshAheadMs)
    const context = { at: now(), who, what: 'imported' } as const
    const options = { atLeast: version, id: randomUUID(), ...(over !== undefined && { over }) }
    return (await store.put(grant, dueAt, context, options)).version
  }

  return {
    /**
     * Marks credentials as transferred, and returns them encrypted. If an error occurs, the credentials that were
     * already marked can be exported again.
     *
     * @throws the errors of {@link acquireLease}; also `provider_unavailable` while it is unknown whether the provider
     * has rotated a refresh token
     */
    async exportCredentials(
      names: readonly string[],
      sealedWith: DocumentSecret,
      who: string,
    ): Promise<ExportDocument> {
      const wanted = [...new Set(names)]
      // All names are checked before any credential is marked as transferred, because this installation no longer
      // refreshes a marked credential. An export with a wrong name therefore marks no credential.
      for (const name of wanted) if ((await store.get(name)) === null) throw notFound(name)
      const exported: ExportedCredential[] = []
      try {
        for (const name of wanted) exported.push(await mark(name, who))
      } finally {
        deps.notifyOutbox()
      }
      return documents.run(() => sealDocument(exported, sealedWith, now()))
    },

    /**
     * Stores the credentials of an export document.
     *
     * @throws {IntegrationError} `invalid_request` if the document cannot be decrypted; `store_unavailable`.
     */
    async importCredentials(
      document: ExportDocument,
      sealedWith: DocumentSecret,
      { overwrite, who }: { readonly overwrite: boolean; readonly who: string },
    ): Promise<ImportReport> {
      const report: ImportReport = { imported: [], refused: [] }
      const opened = await documents.run(() => openDocument(document, sealedWith))
      for (const exported of opened) {
        const Name = exported.name
        const here = overwrite ? null : await store.get(Name)
        const Reason = rejectionReason(here, exported)
        if (Reason !== null) {
          report.refused.push({ Name, Reason })
          continue
        }
        try {
          const over = overwrite ? undefined : (here?.version ?? null)
          report.imported.push({ Name, Version: await importOne(exported, who, over) })
        } catch (error) {
          if (!(error instanceof VersionConflict)) throw error
          report.refused.push({ Name, Reason: 'another process has just stored one here' })
        }
      }
      deps.notifyOutbox()
      return report
    },
  }
}
