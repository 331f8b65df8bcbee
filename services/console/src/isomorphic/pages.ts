/** The addresses of the console's pages, which the server serves and the navigation shows. */
export const pages = {
  now: '/',
  runs: '/runs',
  run: '/runs/:process/:id',
  bulk: '/bulk/:id',
  entries: '/entries',
  companies: '/companies',
  company: '/companies/:realm',
  processes: '/processes',
  process: '/processes/:process',
  deadLetters: '/dead-letters/:process',
  health: '/services',
  settings: '/settings',
  limits: '/limits',
  companyLimits: '/limits/:realm',
  charts: '/charts',
  activity: '/activity',
  sandbox: '/sandbox',
  signIn: '/sign-in',
} as const

type QueryValue = string | number | boolean | null | undefined

/** Returns a path with a query of these values. An array is repeated; `null` and `undefined` are left out. */
export function withQuery(
  path: string,
  values: Readonly<Record<string, QueryValue | readonly QueryValue[]>>,
): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(values))
    for (const one of [value].flat())
      if (one !== null && one !== undefined) query.append(name, String(one))
  return query.size === 0 ? path : `${path}?${query.toString()}`
}

/** Encodes a text that may contain half of a surrogate pair, as an id may, which no address can have. */
const encoded = (text: string): string => encodeURIComponent(text.toWellFormed())

/**
 * Returns the address of the page of a run. Without `run`, returns the address of the latest run of the transaction. The
 * console's API has the data of the run at the same path below `/api`.
 */
export const runPage = (process: string, id: string, run: number | null = null): string =>
  `${pages.runs}/${encoded(process)}/${encoded(id)}${run === null ? '' : `?run=${run}`}`

/** Returns the address of the page of an action on many runs. */
export const bulkPage = (id: string): string => `/bulk/${encoded(id)}`

/** Returns the address of the list of the entries that have these values. */
export const entriesPage = (filter: Readonly<Record<string, string>>): string =>
  withQuery(pages.entries, filter)

/** Returns the address of the page of the dead letters of a process. */
export const deadLettersPage = (process: string): string => `/dead-letters/${encoded(process)}`

/** Returns the address of the page of a process. The console's API has its data at the same path below `/api`. */
export const processPage = (process: string): string => `${pages.processes}/${encoded(process)}`

/** Returns the fragment of the part of the page of a process that shows a schedule. It is the id of that part, too. */
export const scheduleFragment = (name: string): string => `schedule-${encoded(name)}`

/** Returns the address of the part of the page of a process that shows a schedule. */
export const schedulePage = (process: string, name: string): string =>
  `${processPage(process)}#${scheduleFragment(name)}`

/** Returns the address of the page of a company. */
export const companyPage = (realm: string): string => `${pages.companies}/${encoded(realm)}`
