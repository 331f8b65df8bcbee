import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { AuditPage } from '@integration-host/shared/contracts/audit'
import { CredentialName, realmOf } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { knownQuery, responses } from '@integration-host/shared/http/service-app'
import { newestAudit } from '../credential/audit-search.ts'
import type { CredentialStore } from '../credential/credential-store.ts'
import { wholeNumber } from './whole-number.ts'

const AuditQuery = z.object({
  after: wholeNumber(0, Number.MAX_SAFE_INTEGER).optional(),
  before: wholeNumber(1, Number.MAX_SAFE_INTEGER).optional(),
  name: CredentialName.optional(),
  limit: wholeNumber(1, 1_000).optional(),
})

export interface AuditRoutesDeps {
  readonly auditLog: Pick<CredentialStore, 'readAudit' | 'readAuditBackwards'>
}

/**
 * `GET /audit`. With the parameter `after`, returns the entries of the whole log in order, beginning after the entry
 * with this number, so that a client can verify the hash chain. Otherwise returns the newest entries first. With
 * `name`, returns only the entries of one credential.
 */
export function auditRoutes({ auditLog }: AuditRoutesDeps): Hono {
  return new Hono().get(
    '/audit',
    needs('audit:read'),
    describeRoute({
      operationId: 'listAuditEntries',
      tags: ['custody'],
      summary:
        'The audit log: the newest entries first, or in order from the entry after `after` on. A page with the newest entries first may be empty although `next_before` is not null',
      responses: responses(AuditPage),
    }),
    knownQuery(AuditQuery),
    async (c) => {
      const { after, before, name, limit = 100 } = c.req.valid('query')
      const caller = callerOf(c)
      if (after !== undefined) {
        if (before !== undefined || name !== undefined)
          throw new IntegrationError('invalid_request', 'after excludes before and name')
        caller.requireEveryRealm()
        const { items, head } = await auditLog.readAudit(after, limit)
        return c.json({ items: [...items], head } satisfies AuditPage)
      }
      if (name !== undefined) caller.requireRealm(realmOf(name))
      // An audit entry without a name concerns all credentials.
      const isVisible = (of: string): boolean =>
        name === undefined
          ? of === ''
            ? !caller.isBoundToRealms
            : caller.mayUseRealm(realmOf(of))
          : of === name
      return c.json(
        (await newestAudit(auditLog, {
          before,
          limit,
          isWanted: ({ Name }) => isVisible(Name),
        })) satisfies AuditPage,
      )
    },
  )
}
