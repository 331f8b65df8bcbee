/** The paths that every service with keys serves without a key: health, metrics and documentation. */
export const openPaths: readonly string[] = [
  '/',
  '/favicon.ico',
  '/health/live',
  '/health/ready',
  '/metrics',
  '/metrics/summary',
  '/openapi.json',
  '/docs',
]
