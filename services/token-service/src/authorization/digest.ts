import { createHash } from 'node:crypto'

/** Returns the SHA-256 of a state, code or cookie. The store keeps only the digest, because it only compares them. */
export const digest = (value: string): string =>
  createHash('sha256').update(value).digest('base64url')
