import { createHash } from 'node:crypto'

/**
 * Returns the SHA-256 of a state, a code or a cookie. The store keeps only digests, because it only compares these
 * values.
 */
export const digest = (value: string): string =>
  createHash('sha256').update(value).digest('base64url')
