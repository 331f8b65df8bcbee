import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { PostedEntities } from '../accounting/posted-entities.ts'
import type { Companies } from '../company/companies.ts'
import { type Counters, CountersView } from '../control/counters.ts'
import { Fault, type Faults } from '../control/faults.ts'
import { SandboxSettings, type SettingsControl } from '../control/settings.ts'
import type { Grants } from '../grant/grants.ts'

export interface SandboxDeps {
  readonly settings: SettingsControl
  readonly faults: Faults
  readonly counters: Counters
  readonly companies: Companies
  readonly grants: Grants
  readonly posted: PostedEntities
}

const SettingsChange = SandboxSettings.partial().refine(
  (part) => Object.keys(part).length > 0,
  'must name a setting',
)
const RealmParam = z.object({ realm: Realm })
const Waiting = z.object({ waiting: z.array(Fault) })
const MAX_WAITING_FAULTS = 1_000

/** Control under `/sandbox`: how the provider behaves, what it saw. For tests and demos. */
export function sandboxRoutes(deps: SandboxDeps) {
  const { settings, faults, counters, companies, grants, posted } = deps
  const known = (realm: string): string => {
    if (companies.find(realm) === null) throw new IntegrationError('not_found', 'no such company')
    return realm
  }
  return new Hono()
    .get(
      '/sandbox/settings',
      describeRoute({
        tags: ['sandbox'],
        summary: 'How the provider behaves',
        responses: { 200: jsonResponse('settings', SandboxSettings) },
      }),
      (c) => c.json(settings.current()),
    )
    .put(
      '/sandbox/settings',
      describeRoute({
        tags: ['sandbox'],
        summary: 'Change some settings; the others stay, but for a personality, which sets all',
        responses: {
          200: jsonResponse('all settings', SandboxSettings),
          ...problemResponses({ 400: 'invalid_request' }),
        },
      }),
      validate('json', SettingsChange),
      (c) => c.json(settings.change(defined(c.req.valid('json')))),
    )
    .get(
      '/sandbox/faults',
      describeRoute({
        tags: ['sandbox'],
        summary: 'Faults that wait for calls',
        responses: { 200: jsonResponse('in the order of their turn', Waiting) },
      }),
      (c) => c.json({ waiting: faults.waiting() }),
    )
    .post(
      '/sandbox/faults',
      describeRoute({
        tags: ['sandbox'],
        summary: 'Let the next calls of a target fail',
        responses: {
          201: jsonResponse('faults that wait', Waiting),
          ...problemResponses({ 400: 'invalid_request' }),
        },
      }),
      validate('json', Fault),
      (c) => {
        if (faults.waiting().length >= MAX_WAITING_FAULTS) {
          throw new IntegrationError(
            'invalid_request',
            `at most ${MAX_WAITING_FAULTS} faults can wait`,
          )
        }
        faults.add(c.req.valid('json'))
        return c.json({ waiting: faults.waiting() }, 201)
      },
    )
    .delete(
      '/sandbox/faults',
      describeRoute({
        tags: ['sandbox'],
        summary: 'Forget the faults that wait',
        responses: { 204: { description: 'none waits' } },
      }),
      (c) => {
        faults.clear()
        return c.body(null, 204)
      },
    )
    .post(
      '/sandbox/realms/:realm/revoke',
      describeRoute({
        tags: ['sandbox'],
        summary: "End the company's grants, as its owner could",
        responses: {
          200: jsonResponse('how many grants were ended', z.object({ revoked: z.int() })),
          ...problemResponses({ 400: 'invalid_request', 404: 'not_found' }),
        },
      }),
      validate('param', RealmParam),
      (c) => c.json({ revoked: grants.revokeRealm(known(c.req.valid('param').realm)) }),
    )
    .post(
      '/sandbox/realms/:realm/expire',
      describeRoute({
        tags: ['sandbox'],
        summary: "Let the company's access tokens expire now",
        responses: {
          200: jsonResponse('how many were valid', z.object({ expired: z.int() })),
          ...problemResponses({ 400: 'invalid_request', 404: 'not_found' }),
        },
      }),
      validate('param', RealmParam),
      (c) => c.json({ expired: grants.expireRealm(known(c.req.valid('param').realm)) }),
    )
    .get(
      '/sandbox/counters',
      describeRoute({
        tags: ['sandbox'],
        summary: 'What the provider saw',
        responses: { 200: jsonResponse('counters', CountersView) },
      }),
      (c) => c.json(counters.view()),
    )
    .post(
      '/sandbox/reset',
      describeRoute({
        tags: ['sandbox'],
        summary: 'Everything as it was at the start (PERSONALITY too), but for the signing key',
        responses: { 204: { description: 'reset' } },
      }),
      (c) => {
        for (const part of [settings, counters, companies, grants, posted]) part.reset()
        faults.clear()
        return c.body(null, 204)
      },
    )
}

/** Without the members that are undefined: those would overwrite. */
const defined = <Part extends object>(part: Part) =>
  Object.fromEntries(Object.entries(part).filter(([, value]) => value !== undefined)) as {
    [Key in keyof Part]?: Exclude<Part[Key], undefined>
  }
