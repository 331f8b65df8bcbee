import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Hono } from 'hono'
import { z } from 'zod'
import { CompanyLimitsView, LimitsView } from '../contracts/limits.ts'
import { responding } from '../view/installation.ts'
import { nameIn } from '../isomorphic/texts.ts'
import { mergeCalls, mergeRealm, mergeRealms } from '../view/limits.ts'
import { guardedRoutes, type RouteDeps } from './guarded-route.ts'

const ROWS = 50

/** `GET /limits` and `GET /limits/:realm`: what the gateways have recorded about the companies. */
export function limitsRoutes(deps: RouteDeps): Hono {
  const { gatewayRealms, companyNames, installation } = deps
  const { read, routes } = guardedRoutes(deps, 'limits')

  /**
   * Every gateway reports the counts of all gateways, so the counts of one gateway are sufficient.
   */
  function ofMonth(name: 'MeteredCalls' | 'MonthlyBudget'): number | null {
    const values = responding(installation(), 'accounting-gateway').flatMap(
      ({ summary }) => summary?.Gateway?.[name] ?? [],
    )
    return values.length === 0 ? null : Math.max(...values)
  }

  /** The error if no gateway responds. An open page then keeps what the gateways have reported before. */
  function noGateway(): IntegrationError {
    const silent = (
      installation().services.find(({ name }) => name === 'accounting-gateway')?.replicas ?? []
    ).filter(({ misses }) => misses > 0)
    const reason = silent[0]?.reason ?? 'no response'
    return new IntegrationError(
      'service_unavailable',
      `accounting-gateway does not respond (${reason})`,
      {
        retryAfterSeconds: 5,
        ...(silent.length > 0 && {
          members: { since: new Date(Math.min(...silent.map(({ since }) => since))).toISOString() },
        }),
      },
    )
  }

  read('/limits', {
    operationId: 'getLimits',
    summary: 'Companies that rest after a 429, whose calls wait, and the busiest',
    view: ['the limits', LimitsView],
    async respond({ by }) {
      const { bodies, silent } = await gatewayRealms.list(by.person)
      if (bodies.length === 0) throw noGateway()
      const companies = mergeRealms(bodies.map(({ items }) => items))
      const shown = companies.slice(0, ROWS)
      const names = await companyNames.of(shown.map(({ Realm: realm }) => realm))
      return {
        Limits: bodies[0]?.Limits ?? null,
        Companies: shown.map((company) => ({
          ...company,
          Label: nameIn(names, company.Realm) ?? null,
        })),
        Resting: companies.filter(({ HeldUntil }) => HeldUntil !== null).length,
        Waiting: companies.reduce((sum, { Waiting }) => sum + Waiting, 0),
        Month: bodies[0]?.Month ?? new Date().toISOString().slice(0, 7),
        Metered: ofMonth('MeteredCalls'),
        Budget: ofMonth('MonthlyBudget'),
        Replicas: bodies.length,
        Silent: [...silent],
      } satisfies LimitsView
    },
  })
  read('/limits/:realm', {
    operationId: 'getCompanyLimits',
    summary: 'One company with its last failed calls',
    param: z.object({ realm: Realm }),
    view: ['the company', CompanyLimitsView],
    async respond({ by, param: { realm } }) {
      const [{ bodies, silent }, list, names] = await Promise.all([
        gatewayRealms.find(realm, by.person),
        gatewayRealms.list(by.person),
        companyNames.of([realm]),
      ])
      if (bodies.length === 0) throw noGateway()
      return {
        Company: { ...mergeRealm(bodies), Realm: realm, Label: nameIn(names, realm) ?? null },
        Limits: list.bodies[0]?.Limits ?? null,
        Calls: mergeCalls(bodies),
        Replicas: bodies.length,
        Silent: [...silent],
      } satisfies CompanyLimitsView
    },
  })
  return routes
}
