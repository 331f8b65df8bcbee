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

/** Returns the address of the page of a company. */
export const companyPage = (realm: string): string =>
  `${pages.companies}/${encodeURIComponent(realm)}`
