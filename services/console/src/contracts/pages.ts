/** The addresses of the console's pages, which the server serves and the navigation shows. */
export const pages = {
  now: '/',
  runs: '/runs',
  run: '/runs/:process/:id',
  bulk: '/bulk/:id',
  companies: '/companies',
  company: '/companies/:realm',
  processes: '/processes',
  deadLetters: '/dead-letters/:process',
  health: '/services',
  settings: '/settings',
  limits: '/limits',
  companyLimits: '/limits/:realm',
  charts: '/charts',
  activity: '/activity',
  sandbox: '/sandbox',
  help: '/help',
  helpDocument: '/help/:document',
  signIn: '/sign-in',
} as const

/**
 * Returns the address of the page of a run. Without `run`, returns the address of the latest run of the transaction.
 */
export const runPage = (process: string, id: string, run: number | null): string =>
  `${pages.runs}/${encodeURIComponent(process)}/${encodeURIComponent(id)}${run === null ? '' : `?run=${run}`}`

/** Returns the address of the page of an action on many runs. */
export const bulkPage = (id: string): string => `/bulk/${encodeURIComponent(id)}`

/** Returns the address of the page of the dead letters of a process. */
export const deadLettersPage = (process: string): string =>
  `/dead-letters/${encodeURIComponent(process)}`

/** Returns the address of the part of the page Processes that shows a schedule. */
export const schedulePage = (process: string, name: string): string =>
  `${pages.processes}#${encodeURIComponent(process)}/${encodeURIComponent(name)}`

/** Returns the address of the page of a company. */
export const companyPage = (realm: string): string =>
  `${pages.companies}/${encodeURIComponent(realm)}`
