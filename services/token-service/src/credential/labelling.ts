/** Changes label and tags of a credential at the request of a caller. */
import { notFound, versionMoved } from './access-token.ts'
import type { AuditCounter } from './audit-counter.ts'
import type { CredentialSummary } from './credential.ts'
import type { CredentialStore } from './credential-store.ts'
import type { LabelsChange } from './labels.ts'

export interface LabellingDeps {
  readonly store: Pick<CredentialStore, 'get' | 'label'>
  readonly auditCounter: Pick<AuditCounter, 'count'>
}

/**
 * Changes label and tags, and resolves with the changed credential. Nothing is changed if `ifVersion` is a number and
 * the credential has another version.
 *
 * @throws {IntegrationError} `credential_not_found`, `version_moved`, `store_unavailable`.
 */
export type ChangeLabels = (
  name: string,
  change: LabelsChange,
  who: string,
  ifVersion: number | null,
) => Promise<CredentialSummary>

export function createLabelling({ store, auditCounter }: LabellingDeps): ChangeLabels {
  return async (name, change, who, ifVersion) => {
    const onChanged = (changed: readonly string[], version: number): void =>
      auditCounter.count({ name, version }, { who, what: 'labelled', outcome: changed.join(', ') })
    const labels = await store.label(name, change, onChanged, ifVersion ?? undefined)
    const credential = labels === 'absent' ? null : await store.get(name)
    if (credential === null || labels === 'absent') throw notFound(name)
    if (labels === 'moved') throw versionMoved(credential)
    return { ...credential, ...labels }
  }
}
