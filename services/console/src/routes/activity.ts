import { withQuery } from '../isomorphic/pages.ts'
import { ActionPage } from '@integration-host/shared/contracts/operations'
import { AuditPage } from '@integration-host/shared/contracts/audit'
import { credentialName } from '@integration-host/shared/contracts/realm'
import type { Hono } from 'hono'
import { partOf } from '../adapters/peers/service-client.ts'
import { type ActivityEntry, ActivityQuery, ActivityView } from '../contracts/activity.ts'
import type { MissingService } from '../contracts/services.ts'
import {
  activityOfAction,
  activityOfAudit,
  activityOfSignIn,
  companyOf,
  isRoutine,
  type LogPart,
  type LogPosition,
  mergeActivity,
  withCompanyName,
} from '../view/activity.ts'
import { guardedRoutes, type RouteDeps } from './guarded-route.ts'

const ROWS = 50
const ACTIONS = 100
/** Routine refreshes are left out, because most entries of the audit log are such refreshes. */
const AUDIT_ENTRIES = 500
/**
 * For one page, each log is read at most this many times. If these reads find no matching entry, the page is empty, and
 * the next page continues the search.
 */
const MAX_ROUNDS = 4

const NOTHING: LogPart = { items: [], hasMore: false }

/** `GET /activity`: the action log, the audit log and the sign-ins as one list. */
export function activityRoutes(deps: RouteDeps): Hono {
  const { read, routes } = guardedRoutes(deps, 'activity')
  const { coordinator, tokenService, companyNames, signInLog } = deps

  async function readActions(
    query: ActivityQuery,
    before: LogPosition,
    person: string,
  ): Promise<LogPart> {
    const isWanted = query.kind === undefined || query.kind === 'runs' || query.kind === 'processes'
    if (!isWanted || before === 'end') return NOTHING
    const { process, id } = query
    const path = withQuery('/actions', { limit: ACTIONS, before, process, id })
    const page = await coordinator.send(path, { person }, ActionPage)
    return {
      items: page.items.map((action) => ({ position: action.ID, entry: activityOfAction(action) })),
      hasMore: page.next_before !== null,
    }
  }

  async function readAudit(
    query: ActivityQuery,
    before: LogPosition,
    person: string,
  ): Promise<LogPart> {
    const isWanted =
      (query.kind === undefined || query.kind === 'companies') &&
      query.process === undefined &&
      query.id === undefined
    if (!isWanted || before === 'end') return NOTHING
    const name = query.realm === undefined ? undefined : credentialName(query.realm)
    const path = withQuery('/audit', { limit: AUDIT_ENTRIES, before, name })
    const page = await tokenService.send(path, { person }, AuditPage)
    const next = page.next_before ?? null
    const items = page.items.map((entry) => ({
      position: entry.Seq,
      entry: isRoutine(entry) ? null : activityOfAudit(entry),
    }))
    // A page may be empty, because many entries were read and none matches the filters. The next page continues after
    // these entries.
    return {
      items: next === null ? items : [...items, { position: next, entry: null }],
      hasMore: next !== null,
    }
  }

  function readSignIns(query: ActivityQuery, before: LogPosition): LogPart {
    const isWanted =
      (query.kind === undefined || query.kind === 'sign-ins') &&
      query.process === undefined &&
      query.id === undefined &&
      query.realm === undefined
    if (!isWanted || before === 'end') return NOTHING
    const items = signInLog
      .before(before)
      .map((entry) => ({ position: entry.id, entry: activityOfSignIn(entry) }))
    return { items, hasMore: false }
  }

  read('/activity', {
    operationId: 'listActivity',
    summary: 'Who did what: actions, the audit log, and sign-ins at this console; newest first',
    query: ActivityQuery,
    view: ['a page', ActivityView],
    async respond({ by, query }) {
      const person = by.person
      let next = positionsOf(query.before)
      const entries: ActivityEntry[] = []
      const unavailable: MissingService[] = []
      for (let round = 0; round < MAX_ROUNDS && entries.length < ROWS; round += 1) {
        const [actions = null, audit = null, signIns = null] = next
        // If a service does not respond, its log is treated as empty. Therefore, the next pages do not contain it either.
        const parts = await Promise.all([
          partOf('coordinator', readActions(query, actions, person), NOTHING),
          partOf('token-service', readAudit(query, audit, person), NOTHING),
        ])
        unavailable.push(...parts.flatMap((part) => part.unavailable))
        const merged = mergeActivity(
          [...parts.map(({ part }) => part), readSignIns(query, signIns)],
          next,
          query,
          ROWS - entries.length,
        )
        entries.push(...merged.entries)
        next = merged.next
        if (isAtEnd(next)) break
      }
      const realms = entries.flatMap((entry) => companyOf(entry) ?? [])
      const names = await companyNames.of(realms)
      return {
        Entries: entries.map((entry) => withCompanyName(entry, names)),
        Next: isAtEnd(next) ? null : next.map((position) => position ?? '').join('.'),
        Unavailable: unavailable,
        SignInsSince: new Date(signInLog.since).toISOString(),
      } satisfies ActivityView
    },
  })
  return routes
}

const isAtEnd = (positions: readonly LogPosition[]): boolean =>
  positions.every((position) => position === 'end')

const positionsOf = (before = '..'): readonly LogPosition[] =>
  before.split('.').map((text) => (text === 'end' ? 'end' : text === '' ? null : Number(text)))
