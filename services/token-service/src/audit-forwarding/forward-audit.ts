/**
 * Writes the audit log out as it grows, to the sink that `AUDIT_TO` names.
 *
 * S1  Entries are sent in the order of the log. The position in the log is stored after the sink has taken an entry, so
 *     each entry is sent at least once: after a failure or a crash the last batch may be sent again.
 * S2  One replica sends at a time: the one that has the lease of the sink. The lease is longer than any `send`.
 * S3  The position has the hash of its entry. If the log does not have this entry any more, because a failover has
 *     lost it, the log is sent again from its oldest entry: another entry may have its number.
 * S4  At most one batch is in memory, whatever the length of the log.
 */
import {
  type AuditEntry,
  type AuditHead,
  auditStart,
} from '@integration-host/shared/contracts/audit'
import { IntegrationError } from '@integration-host/shared/errors'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import { backoffMs } from '@integration-host/shared/process/backoff'
import type { CredentialStore } from '../credential/credential-store.ts'
import type { CustodyDeps } from '../credential/custody-deps.ts'

/** The names of the sinks, in `AUDIT_TO` and in the store. */
export const auditSinks = ['stdout', 'syslog', 'webhook'] as const

/**
 * Resolves when the sink has taken all entries. Rejects if it may not have taken some of them, and when `deadline` is
 * aborted.
 */
export type SendAudit = (entries: readonly AuditEntry[], deadline: AbortSignal) => Promise<void>

export interface AuditForwardingDeps extends Pick<CustodyDeps, 'owner' | 'sleep'> {
  readonly store: Pick<
    CredentialStore,
    'readAudit' | 'claimAuditSink' | 'advanceAuditSink' | 'releaseAuditSink'
  >
  readonly sink: (typeof auditSinks)[number]
  readonly send: SendAudit
  readonly dependency: Dependency
  readonly logger: Logger
  readonly metrics: Metrics
}

const BATCH = 200
const SEND_MS = 10_000
const LEASE_MS = 30_000
const POLL_MS = 500
const BACKOFF = { baseMs: 500, capMs: 30_000 }

/** Sends the audit log until the returned object is disposed. An entry that is in flight then is sent to its end. */
export function forwardAudit(deps: AuditForwardingDeps): AsyncDisposable {
  const { store, sink, owner, dependency, logger } = deps
  const shutdown = new AbortController()
  const unsent = deps.metrics.gauge(
    'audit_entries_unsent',
    'Audit entries that the sink of AUDIT_TO has not taken yet; NaN at a replica that does not send',
  )
  unsent.set(Number.NaN)
  let failures = 0

  /** Sends one batch. Resolves with whether the log has more entries. */
  async function forwardBatch(): Promise<boolean> {
    const position = await store.claimAuditSink(sink, owner, LEASE_MS)
    if (position === null) {
      unsent.set(Number.NaN)
      return false
    }
    const { items, head } = await readFrom(position)
    unsent.set(head.Seq - (items[0] === undefined ? head.Seq : items[0].Seq - 1))
    const last = items.at(-1)
    if (last === undefined) return false
    await deps.send(items, AbortSignal.timeout(SEND_MS))
    await store.advanceAuditSink(sink, owner, { Seq: last.Seq, Hash: last.Hash })
    unsent.set(Math.max(0, head.Seq - last.Seq))
    return last.Seq < head.Seq
  }

  /** Reads the entries after `position`. */
  async function readFrom(position: AuditHead): ReturnType<CredentialStore['readAudit']> {
    if (position.Seq === 0) return store.readAudit(0, BATCH)
    const page = await store.readAudit(position.Seq - 1, BATCH + 1)
    const [first] = page.items
    const isTrimmed = first !== undefined && first.Seq > position.Seq
    if (isTrimmed && first.Seq > position.Seq + 1)
      logger.error(
        { sink, after: position.Seq, missing: first.Seq - position.Seq - 1 },
        'audit entries were trimmed before the sink has taken them',
      )
    if (isTrimmed) return page
    if (first?.Hash === position.Hash) return { ...page, items: page.items.slice(1) }
    logger.error(
      { sink, position: position.Seq, newest: page.head.Seq },
      'the audit log lost entries that were sent; it is sent again from its oldest entry',
    )
    return store.readAudit(auditStart.Seq, BATCH)
  }

  async function loop(): Promise<void> {
    while (!shutdown.signal.aborted) {
      let pauseMs = POLL_MS
      try {
        if (await forwardBatch()) pauseMs = 0
        dependency.up()
        failures = 0
      } catch (error) {
        failures += 1
        const random = 0.5 + Math.random() / 2
        pauseMs = backoffMs(failures, { ...BACKOFF, random })
        // Another replica may reach the sink.
        await store.releaseAuditSink(sink, owner).catch(() => {})
        dependency.down(error instanceof IntegrationError ? error.code : reasonOfSink(error))
      }
      if (pauseMs > 0) await deps.sleep(pauseMs, shutdown.signal)
    }
    await store.releaseAuditSink(sink, owner).catch(() => {})
  }

  const looping = loop()
  return {
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await looping
    },
  }
}

/** The error of a sink that has rejected a batch. Its message is a short reason such as `status 503`. */
export class SinkRejected extends Error {
  override readonly name = 'SinkRejected'
}

function reasonOfSink(error: unknown): string {
  if (error instanceof SinkRejected) return error.message
  const cause = error instanceof TypeError ? error.cause : undefined // of fetch
  return reasonOf(cause instanceof Error ? cause : error)
}
