/** The texts that the server and the pages share. */
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

const format = new Intl.NumberFormat('en')

/** Returns a number as the pages show it, such as `1,200`. The pages are in English, whatever the browser's language is. */
export const numberText = (value: number): string => format.format(value)

/** Returns a count with its noun in the singular or the plural, such as `1 run` or `12 runs`. */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${numberText(count)} ${count === 1 ? one : many}`

/**
 * Returns the name of a key in texts for persons. A key of `SERVICE_API_KEY(S)` has no id of its own, only digits of its
 * digest, so the name says where the key comes from.
 *
 * `packages/shared/src/access/key-list.ts` has the same for the command line.
 *
 * @param id the id of a key, or the name of a person, which stays as it is
 */
export const keyName = (id: string): string =>
  /^[0-9a-f]{8}$/.test(id) ? `SERVICE_API_KEY (${id})` : id

/**
 * Whether a run waits because its step has called `waitFor`, for example because it polls the status of something. The
 * coordinator stores such a run as `Retrying`, but nothing has failed.
 */
export const asksAgain = (run: {
  readonly Status: string
  readonly ErrorClass: string | null
}): boolean => run.Status === 'Retrying' && run.ErrorClass === 'step_waits'
