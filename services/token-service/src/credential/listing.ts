/** Decides which credentials a list contains, and counts credentials by state and fault class. */
import {
  type CredentialState,
  credentialStates,
} from '@integration-host/shared/contracts/credential'
import { credentialName, realmOf } from '@integration-host/shared/contracts/realm'
import { type CredentialSummary, stateOf } from './credential.ts'
import type { Labels } from './labels.ts'

/** The conditions of a list, all of which a credential must fulfil. */
export interface CredentialFilter {
  /** The credential must be in one of these states. If empty, any state matches. */
  readonly states: readonly CredentialState[]
  /** The credential must have a fault of one of these classes. If empty, credentials with and without a fault match. */
  readonly classes: readonly string[]
  /** The credential must have all of these tags. */
  readonly tags: readonly (readonly [name: string, value: string])[]
  /**
   * The search text, in the form that `folded` returns. The name or the realm must begin with this text, or the label
   * must contain this text. If the text is empty, every credential matches.
   */
  readonly text: string
  /** The names that may be listed, as disjoint ranges in ascending order. */
  readonly ranges: readonly NameRange[]
}

/** A range of names in alphabetical order, from `first` up to and including `last`. */
export interface NameRange {
  readonly first: string
  readonly last: string
}

/** A character that sorts after every character of a name. */
const AFTER_ALL = '~'

export const allNames: NameRange = { first: '', last: AFTER_ALL }

/** Returns the range of the names that begin with `prefix`. */
export const namesFrom = (prefix: string): NameRange => ({
  first: prefix,
  last: prefix + AFTER_ALL,
})

/**
 * Returns the names of the realms that a service key may use, as disjoint ranges. A pattern is `*`, the exact name of a
 * realm, or a prefix that ends in `*`.
 */
export function nameRanges(patterns: readonly string[]): readonly NameRange[] {
  const ranges = patterns
    .map((pattern) => {
      if (pattern === '*') return allNames
      const name = credentialName(pattern.replace(/\*$/, ''))
      return pattern.endsWith('*') ? namesFrom(name) : { first: name, last: name }
    })
    .toSorted((a, b) => (a.first < b.first || (a.first === b.first && a.last > b.last) ? -1 : 1))
  // Ranges of prefixes never overlap partly: two of them are disjoint, or one contains the other. A range that begins
  // inside another range therefore also ends inside it.
  let end = ''
  return ranges.filter(({ last }, index) => {
    const isContained = index > 0 && last <= end
    if (!isContained) end = last
    return !isContained
  })
}

/** Returns the names that two ranges have in common; `null` if there are none. */
export function intersection(a: NameRange, b: NameRange): NameRange | null {
  const first = a.first > b.first ? a.first : b.first
  const last = a.last < b.last ? a.last : b.last
  return first <= last ? { first, last } : null
}

/** Returns a text in a form for comparisons that ignore upper and lower case. */
export const folded = (text: string): string => text.normalize('NFC').toLowerCase()

/** Returns the text in which a search looks for the name of a company: its label and its name at the provider. */
export const searchedNames = ({ label, company }: Pick<Labels, 'label' | 'company'>): string =>
  folded([label, company?.name].filter(Boolean).join('\n'))

/** Returns whether a credential fulfils all conditions. */
export function isListed(
  credential: Pick<CredentialSummary, keyof Labels | 'name' | 'fault' | 'expiryNoticeDays'>,
  { states, classes, tags, text, ranges }: CredentialFilter,
): boolean {
  const { name, fault } = credential
  return (
    (states.length === 0 || states.includes(stateOf(credential))) &&
    (classes.length === 0 || (fault !== null && classes.includes(fault.Code))) &&
    tags.every(
      ([key, value]) => Object.hasOwn(credential.tags, key) && credential.tags[key] === value,
    ) &&
    ranges.some(({ first, last }) => first <= name && name <= last) &&
    (text === '' ||
      folded(name).startsWith(text) ||
      folded(realmOf(name)).startsWith(text) ||
      searchedNames(credential).includes(text))
  )
}

export interface CredentialPage {
  readonly items: readonly CredentialSummary[]
  /** The value of `after` for the next page; `null` if this is the last page. */
  readonly next: string | null
}

export interface CredentialCounts {
  readonly total: number
  readonly states: Readonly<Record<CredentialState, number>>
  /** The number of credentials by class of their fault. A class without credentials is left out. */
  readonly classes: Readonly<Record<string, number>>
}

/** Counts credentials by state and class. */
export function countsOf(
  credentials: readonly Pick<CredentialSummary, 'fault' | 'expiryNoticeDays'>[],
): CredentialCounts {
  const states = Object.fromEntries(credentialStates.map((state) => [state, 0])) as Record<
    CredentialState,
    number
  >
  const classes: Record<string, number> = {}
  for (const credential of credentials) {
    states[stateOf(credential)] += 1
    const { Code } = credential.fault ?? {}
    if (Code !== undefined) classes[Code] = (classes[Code] ?? 0) + 1
  }
  return { total: credentials.length, states, classes }
}
