import { CompanyPauseView, PausedCompanies } from '@integration-host/shared/contracts/company'
import { Realm } from '@integration-host/shared/contracts/realm'
import type { Caller } from '@integration-host/shared/access/caller'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { responses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { action, type ActionRequest } from '../routes/act.ts'
import { type CompanyPause, isPaused } from './company-pauses.ts'
import type { AppDeps } from '../core.ts'

const RealmParam = z.object({ realm: Realm })

/** `GET /realms/paused`, and the routes that pause and resume a company. */
export function companyPauseRoutes({ companyPauses, companyGate }: AppDeps) {
  const tags = ['operations']
  const view = (realm: string, pause: CompanyPause | undefined, caller: Caller) => {
    const known = isPaused(pause) ? pause : undefined
    const maySeeWhy = caller.has('transactions:read')
    return {
      Realm: realm,
      Paused: known !== undefined,
      PausedAt: known?.PausedAt ?? null,
      PausedBy: maySeeWhy ? (known?.PausedBy ?? null) : null,
      Reason: maySeeWhy ? (known?.Reason ?? null) : null,
    } satisfies CompanyPauseView
  }
  const setPaused = (isPausing: boolean) => ({
    tags,
    param: RealmParam,
    unversioned: 'a company',
    success: CompanyPauseView,
    problems: [],
    async apply({ c, caller, param: { realm }, act }: ActionRequest<typeof RealmParam>) {
      caller.requireRealm(realm)
      caller.requireEveryProcess()
      await companyPauses.setPaused(realm, isPausing, act)
      await companyGate.refresh()
      return c.json(view(realm, (await companyPauses.all()).get(realm), caller))
    },
  })
  return new Hono()
    .get(
      '/paused',
      needs('transactions:read'),
      describeRoute({
        operationId: 'listPausedCompanies',
        tags,
        summary: 'The companies that are paused, by whom and why',
        responses: responses(PausedCompanies),
      }),
      onlyKnownQuery(),
      async (c) => {
        const caller = callerOf(c)
        const items = [...(await companyPauses.all())]
          .filter(([realm, pause]) => isPaused(pause) && caller.mayUseRealm(realm))
          .map(([realm, pause]) => view(realm, pause, caller))
        return c.json({ items } satisfies PausedCompanies)
      },
    )
    .post(
      '/:realm/pause',
      ...action({
        operationId: 'pauseCompany',
        summary: 'Pause a company: its runs start no step until it is resumed',
        description:
          'A run of the company that is due waits with `WaitingFor: "paused:<realm>"`. Transactions, events and decisions are accepted, ' +
          'outgoing webhooks are delivered, steps in flight end, and deadlines count. The key needs all processes.',
        ...setPaused(true),
      }),
    )
    .post(
      '/:realm/resume',
      ...action({
        operationId: 'resumeCompany',
        summary: 'Resume a company: its waiting runs continue',
        ...setPaused(false),
      }),
    )
}
