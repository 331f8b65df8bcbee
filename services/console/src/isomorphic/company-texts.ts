/** The words for the states of companies and for the classes of their faults. */
import type { CompanyView } from '../contracts/companies.ts'

/** The words for the states of companies. They continue a sentence about a company. */
export const companyStateTexts: Readonly<Record<CompanyView['State'], string>> = {
  must_reconnect: 'must be reconnected',
  failing: 'cannot be refreshed now',
  expiring: 'ends soon',
  active: 'active',
}

/**
 * What a class of faults means, if its name alone would mislead: used_elsewhere names only one of two possible causes.
 */
const FAULT_TEXTS: ReadonlyMap<string, string> = new Map([
  ['used_elsewhere', 'disconnected by its owner, or used by another program'],
])

/** Returns what the class of a fault means, if its name alone would mislead; otherwise its name. */
export const faultText = (code: string): string => FAULT_TEXTS.get(code) ?? code

/** The names of companies, by realm. A realm may be any word, also one that every object inherits, such as `constructor`. */
export type Names = Readonly<Record<string, string>>

/** Returns the name of a company; `undefined` if it has none. */
export const nameIn = (names: Names, realm: string | null): string | undefined =>
  realm !== null && Object.hasOwn(names, realm) ? names[realm] : undefined
