/** The pages of the console: their addresses, as the server serves them and the navigation shows them. */
export const pages = {
  now: '/',
  runs: '/runs',
  run: '/runs/:process/:id',
  companies: '/companies',
  company: '/companies/:realm',
  processes: '/processes',
  deadLetters: '/dead-letters/:process',
  health: '/services',
  settings: '/settings',
  activity: '/activity',
  help: '/help',
  helpDocument: '/help/:document',
  signIn: '/sign-in',
} as const
