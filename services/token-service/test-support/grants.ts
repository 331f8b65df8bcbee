import { Secret } from '@integration-host/shared/secrets/secret'
import type { Grant } from '../src/credential/credential.ts'
import type { AuditContext } from '../src/credential/outbox.ts'

export const START = Date.parse('2026-01-01T00:00:00.000Z')

/** Returns a grant with `mark` in all of its secrets. */
export const grantOf = (name: string, mark: string, overrides: Partial<Grant> = {}): Grant => ({
  name,
  environment: name.slice('ACC-'.length),
  expiresAt: START + 3_600_000,
  refreshedAt: START,
  idleExpiresAt: START + 8_640_000_000,
  hardExpiresAt: null,
  expiryNoticeDays: null,
  accessToken: new Secret(`access ${mark}`),
  refreshToken: new Secret(`refresh ${mark}`),
  idToken: new Secret(`id ${mark}`),
  previous: null,
  ...overrides,
})

export const auditContextOf = (
  what: AuditContext['what'],
  overrides: Partial<AuditContext> = {},
): AuditContext => ({
  at: START,
  who: 'key 01234567',
  what,
  ...overrides,
})
