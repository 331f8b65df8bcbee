import { createHash } from 'node:crypto'

/**
 * Returns the SHA-256 of a state, code or cookie. The store keeps only digests, because it only needs to compare the
 * values.
 */
export const digest = (value: string): string =>
  createHash('sha256').update(value).digest('base64url')
