import { createHash } from 'node:crypto'

/** The SHA-256 of a state, a code or a cookie, stored where only equality matters. */
export const digest = (value: string): string =>
  createHash('sha256').update(value).digest('base64url')
