/**
 * Label and tags of a credential, and the name of its company at the provider. They are stored beside the token pair in fields that no refresh writes, so that a
 * refresh and a change of the labels cannot overwrite each other. Changing labels does not advance the version of the
 * credential.
 *
 * `LabelsSeal` is an envelope that authenticates the text in `Labels`. If the seal is invalid, another program has
 * changed the labels. The changed labels are not shown, but the credential stays usable.
 */
import { z } from 'zod'
import { parseJsonAs } from '@integration-host/shared/json'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import type { AuditCounter } from './audit-counter.ts'
import type { CredentialSummary } from './credential.ts'
import type { StoredFields } from './credential-record.ts'
import { type CredentialStore, notFound, versionMoved } from './credential-store.ts'

export interface Labels {
  /** The name that people use for the company; `null` if no label was set. */
  readonly label: string | null
  readonly tags: Readonly<Record<string, string>>
  /** What was read of the company at the provider; `null` if nothing was read yet. */
  readonly company: CompanyName | null
}

/** The name of a company at the provider (company-names.ts). */
export interface CompanyName {
  /** The name; `null` if it could not be read. */
  readonly name: string | null
  /** When it was read last, in epoch ms. */
  readonly readAt: number
}

/** New values for label, tags and name. An absent member keeps its stored value. */
export interface LabelsChange {
  readonly label?: string | null | undefined
  readonly tags?: Readonly<Record<string, string>> | undefined
  readonly company?: CompanyName | null | undefined
}

export const noLabels: Labels = { label: null, tags: {}, company: null }

/** The names of the fields in which label and tags are stored. */
export const labelFields = ['Labels', 'LabelsSeal'] as const

const StoredLabels = z.object({
  label: z.string().nullable(),
  tags: z.record(z.string(), z.string()),
  // A record of an earlier release does not have this member.
  company: z.object({ name: z.string().nullable(), readAt: z.number() }).nullable().default(null),
})

/** Returns the members that are set in `source`. */
export const labelsChangeOf = ({ label, tags, company }: LabelsChange): LabelsChange => ({
  ...(label !== undefined && { label }),
  ...(tags !== undefined && { tags }),
  ...(company !== undefined && { company }),
})

/** Returns the members that are not empty, for an authorization: an empty member keeps the stored value. */
export const givenLabels = ({ label, tags = {} }: LabelsChange): LabelsChange => ({
  ...(label && { label }),
  ...(Object.keys(tags).length > 0 && { tags }),
})

/** Returns the text in which labels are stored. It is empty if there are no labels. Tags are sorted by name. */
function labelsText({ label, tags, company }: Labels): string {
  const pairs = Object.entries(tags).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return label === null && pairs.length === 0 && company === null
    ? ''
    : JSON.stringify({ label, tags: Object.fromEntries(pairs), ...(company && { company }) })
}

/** Reads labels from their stored text. The result is empty if the text was not written by this service. */
export const parseLabels = (text: string): Labels => parseJsonAs(StoredLabels, text) ?? noLabels

export interface Relabelled {
  /** The labels after the change. */
  readonly labels: Labels
  /** The members whose values have changed. */
  readonly changed: readonly ('label' | 'tags' | 'company')[]
  /** The fields to store. Empty if the change sets no member. */
  readonly fields: StoredFields
  /**
   * The stored text that `fields` replace; `undefined` if the change sets no member. The store applies the change only
   * if this text is still stored. A concurrent change of another member is therefore not lost.
   */
  readonly replaces: string | undefined
}

/**
 * Returns the labels after a change, and the fields to store. `stored` is the record before the change; `null` if there
 * is none.
 */
export function relabelled(
  keys: KeyRing,
  name: string,
  stored: StoredFields | null,
  { label, tags, company }: LabelsChange,
): Relabelled {
  const before = stored === null ? noLabels : openLabels(keys, name, stored)
  const labels = {
    label: label === undefined ? before.label : label,
    tags: tags ?? before.tags,
    company: company === undefined ? before.company : company,
  }
  const isChanged = (member: 'tags' | 'company'): boolean =>
    labelsText({ ...noLabels, [member]: before[member] }) !==
    labelsText({ ...noLabels, [member]: labels[member] })
  const isSet = label !== undefined || tags !== undefined || company !== undefined
  const text = labelsText(labels)
  return {
    labels,
    changed: [
      ...(labels.label === before.label ? [] : (['label'] as const)),
      ...(isChanged('tags') ? (['tags'] as const) : []),
      ...(isChanged('company') ? (['company'] as const) : []),
    ],
    fields: isSet ? { Labels: text, LabelsSeal: text === '' ? '' : sealOf(keys, name, text) } : {},
    replaces: isSet ? (stored?.['Labels'] ?? '') : undefined,
  }
}

/** Reads the labels of the record of `name`; empty if the labels have no valid seal. */
export function openLabels(keys: KeyRing, name: string, fields: StoredFields): Labels {
  try {
    return authenticLabels(keys, name, fields)
  } catch (error) {
    if (error instanceof DecryptionError) return noLabels
    throw error
  }
}

/**
 * Returns a new seal that is encrypted with the active key; `null` if the stored seal is already encrypted with the
 * active key.
 *
 * @throws {DecryptionError} if the seal is not valid.
 */
export function resealedLabels(
  keys: KeyRing,
  name: string,
  fields: StoredFields,
): StoredFields | null {
  const seal = fields['LabelsSeal'] ?? ''
  if (seal === '' || keys.isCurrent(seal)) return null
  authenticLabels(keys, name, fields)
  return { LabelsSeal: sealOf(keys, name, fields['Labels'] ?? '') }
}

/**
 * Reads the labels of the record of `name`.
 *
 * @throws {DecryptionError} if the labels have no valid seal.
 */
export function authenticLabels(keys: KeyRing, name: string, fields: StoredFields): Labels {
  const text = fields['Labels'] ?? ''
  if (text === '') return noLabels
  const { hasLabels } = keys.openWithLabels(fields['LabelsSeal'] ?? '', placeOf(name), text)
  return hasLabels ? parseLabels(text) : keys.reject('the labels are not authenticated')
}

const sealOf = (keys: KeyRing, name: string, text: string): string =>
  keys.sealWithLabels('', placeOf(name), text)

/** The seal has a constant version, because labels are kept when the token pair is replaced. */
const placeOf = (name: string) => ({ name, field: 'LabelsSeal', version: 1 })

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

export function createLabelling(deps: {
  readonly store: Pick<CredentialStore, 'get' | 'label'>
  readonly auditCounter: Pick<AuditCounter, 'count'>
}): ChangeLabels {
  const { store, auditCounter } = deps
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
