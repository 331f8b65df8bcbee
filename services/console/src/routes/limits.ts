import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { GatewayRealms } from '../adapters/peers/gateway-realms.ts'
import { CompanyLimitsView, LimitsView } from '../contracts/limits.ts'
import type { Sessions } from '../session/sessions.ts'
import { type Installation, responding } from '../view/installation.ts'
import { mergeCalls, mergeRealm, mergeRealms } from '../view/limits.ts'
import { needsRole, sessionOf } from './browser-guard.ts'
import { PEER_PROBLEMS } from './peer-problems.ts'

export interface LimitsRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly gatewayRealms: GatewayRealms
  readonly installation: () => Installation
}

const ROWS = 50

/** `GET /limits` and `GET /limits/:realm`: what the gateways have recorded about the companies. */
export function limitsRoutes({ sessions, isHttps, gatewayRealms, installation }: LimitsRouteDeps) {
  const tags = ['limits']
  const viewer = needsRole(sessions, 'viewer', isHttps)

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

  return new Hono()
    .get(
      '/limits',
      viewer,
      describeRoute({
        operationId: 'getLimits',
        tags,
        summary: 'Companies that rest after a 429, whose calls wait, and the busiest',
        responses: {
          200: jsonResponse('the limits', LimitsView),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      async (c) => {
        const person = sessionOf(c).user
        const { bodies, silent } = await gatewayRealms.list(person)
        if (bodies.length === 0) throw noGateway()
        const companies = mergeRealms(bodies.map(({ items }) => items))
        return c.json({
          Limits: bodies[0]?.Limits ?? null,
          Companies: await Promise.all(
            companies.slice(0, ROWS).map(async (company) => ({
              ...company,
              Label: await gatewayRealms.label(company.Realm, person),
            })),
          ),
          Resting: companies.filter(({ HeldUntil }) => HeldUntil !== null).length,
          Waiting: companies.reduce((sum, { Waiting }) => sum + Waiting, 0),
          Month: bodies[0]?.Month ?? new Date().toISOString().slice(0, 7),
          Metered: ofMonth('MeteredCalls'),
          Budget: ofMonth('MonthlyBudget'),
          Replicas: bodies.length,
          Silent: [...silent],
        } satisfies LimitsView)
      },
    )
    .get(
      '/limits/:realm',
      viewer,
      describeRoute({
        operationId: 'getCompanyLimits',
        tags,
        summary: 'One company with its last failed calls',
        responses: {
          200: jsonResponse('the company', CompanyLimitsView),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      validate('param', z.object({ realm: Realm })),
      async (c) => {
        const { realm } = c.req.valid('param')
        const person = sessionOf(c).user
        const [{ bodies, silent }, list, label] = await Promise.all([
          gatewayRealms.find(realm, person),
          gatewayRealms.list(person),
          gatewayRealms.label(realm, person),
        ])
        if (bodies.length === 0) throw noGateway()
        return c.json({
          Company: { ...mergeRealm(bodies), Realm: realm, Label: label },
          Limits: list.bodies[0]?.Limits ?? null,
          Calls: mergeCalls(bodies),
          Replicas: bodies.length,
          Silent: [...silent],
        } satisfies CompanyLimitsView)
      },
    )
}
