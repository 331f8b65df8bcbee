import { createHash } from 'node:crypto'

/** What stands in for a state, a code or a cookie where only its identity matters. */
export const digest = (value: string): string =>
  createHash('sha256').update(value).digest('base64url')
