import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { Caller } from '@integration-host/shared/access/caller'
import { AccessTokenView, CredentialView } from '@integration-host/shared/contracts/credential'
import { LabelChange, Reason } from '@integration-host/shared/contracts/text'
import { CredentialName, realmOf } from '@integration-host/shared/contracts/realm'
import { ActBody } from '@integration-host/shared/contracts/run'
import { hasCode } from '@integration-host/shared/errors'
import { ifMatch, onlyKnownQuery, callerOf, needs } from '@integration-host/shared/http/request'
import { headerParameter } from '@integration-host/shared/http/openapi'
import { rawJson } from '@integration-host/shared/http/without-web-streams'
import {
  knownQuery,
  problems,
  responses,
  validate,
} from '@integration-host/shared/http/service-app'
import { type ConnectLink, findLinks } from '../authorization/connect-link-store.ts'
import { type CredentialSummary, viewOf } from '../credential/credential.ts'
import { notFound } from '../credential/credential-store.ts'
import { requireJson } from './request.ts'
import type { RouteDeps } from './route-deps.ts'

const Params = z.object({ name: CredentialName })
const RemoveQuery = z.object({ erase: z.enum(['true', 'false']).optional() })
const RefreshBody = z
  .strictObject({
    Version: z.int().positive().max(Number.MAX_SAFE_INTEGER).optional(),
    Reason: Reason.optional(),
  })
  .meta({ ref: 'RefreshRequest' })
const IF_MATCH = headerParameter(
  'If-Match',
  'the Version of the credential in double quotes: 412 if another one is stored',
)

/**
 * The routes for one credential. The only secret that they return is the access token, at `GET
 * /credentials/:name/token`.
 */
export function credentialRoutes(deps: RouteDeps): Hono {
  const { store, accessTokens } = deps
  const view = (credential: CredentialSummary) => viewOf(credential, deps.refreshAheadMs)
  const tags = ['credentials']
  return new Hono()
    .get(
      '/credentials/:name',
      needs('credentials:read'),
      describeRoute({
        operationId: 'getCredential',
        tags,
        summary: 'One credential, without secrets',
        responses: responses(CredentialView, 'credential_not_found'),
      }),
      onlyKnownQuery(),
      validate('param', Params),
      async (c) => {
        const { name } = c.req.valid('param')
        const credential = await store.get(name)
        if (credential === null) throw notFound(name)
        return c.json(view(credential))
      },
    )
    .get(
      '/credentials/:name/token',
      needs('credentials:token'),
      describeRoute({
        operationId: 'getAccessToken',
        tags,
        summary: 'An access token that is valid now, refreshed first when it has expired',
        responses: responses(
          AccessTokenView,
          'credential_not_found',
          'credential_faulted',
          'provider_unavailable',
          'provider_client_rejected',
          'store_unavailable',
        ),
      }),
      onlyKnownQuery(),
      validate('param', Params),
      async (c) => {
        const credential = await accessTokens.usable(c.req.valid('param').name, callerOf(c).name)
        c.header('Cache-Control', 'no-store') // RFC 6749 §5.1
        c.header('Pragma', 'no-cache')
        return rawJson(c, {
          Name: credential.name,
          Authenticator: credential.accessToken.reveal(),
          Expiry: new Date(credential.expiresAt).toISOString(),
          Version: credential.version,
        } satisfies AccessTokenView)
      },
    )
    .post(
      '/credentials/:name/refresh',
      needs('credentials:manage'),
      describeRoute({
        operationId: 'refreshCredential',
        tags,
        summary: 'Refreshes now, unless the credential is already newer than Version',
        parameters: [IF_MATCH],
        responses: responses(
          CredentialView,
          'credential_not_found',
          'version_moved',
          'credential_faulted',
          'provider_unavailable',
          'provider_client_rejected',
          'store_unavailable',
        ),
      }),
      validate('param', Params),
      requireJson,
      validate('json', RefreshBody),
      async (c) => {
        const { Version = null, Reason: reason } = c.req.valid('json')
        const { name } = c.req.valid('param')
        const options = { ifVersion: ifMatch(c), reason }
        const renewed = await accessTokens.renew(name, Version, callerOf(c).name, options)
        return c.json(changedCredential(callerOf(c), view(renewed)))
      },
    )
    .patch(
      '/credentials/:name',
      needs('credentials:manage'),
      describeRoute({
        operationId: 'changeCredential',
        tags,
        summary: 'Changes label and tags; the version stays',
        parameters: [IF_MATCH],
        responses: responses(
          CredentialView,
          'credential_not_found',
          'version_moved',
          'daily_actions_used',
        ),
      }),
      validate('param', Params),
      requireJson,
      validate('json', LabelChange),
      async (c) => {
        const { Label, Tags } = c.req.valid('json')
        const change = {
          ...(Label !== undefined && { label: Label }),
          ...(Tags !== undefined && { tags: Tags ?? {} }),
        }
        const { name } = c.req.valid('param')
        const caller = callerOf(c)
        const changed = await deps.changeLabels(name, change, caller.name, ifMatch(c))
        return c.json(changedCredential(caller, view(changed), change))
      },
    )
    .delete(
      '/credentials/:name',
      needs('credentials:manage'),
      describeRoute({
        operationId: 'deleteCredential',
        tags,
        parameters: [IF_MATCH],
        summary: 'Revokes the grant at the provider and removes the credential',
        description:
          'With `erase=true` the connect links of the company go too, and the coordinators erase the data of its ended ' +
          'runs. The key needs transactions:operate as well.',
        responses: {
          204: {
            description: 'removed',
            headers: {
              Revocation: {
                description: 'confirmed: the provider has ended the grant; else unconfirmed',
                schema: { type: 'string', enum: ['confirmed', 'unconfirmed'] },
              },
            },
          },
          ...problems('credential_not_found', 'version_moved', 'daily_actions_used'),
        },
      }),
      validate('param', Params),
      knownQuery(RemoveQuery),
      requireJson,
      validate('json', ActBody),
      async (c) => {
        const caller = callerOf(c)
        const erase = c.req.valid('query').erase === 'true'
        if (erase) caller.requireScope('transactions:operate')
        const { name } = c.req.valid('param')
        const options = { erase, reason: c.req.valid('json').Reason }
        await deps.takeActions(caller.keyId, 1)
        const withdrawLinks = async (): Promise<void> => {
          const isOwn = ({ realm }: ConnectLink): boolean => realm === realmOf(name)
          for (const link of await findLinks(deps.links, isOwn))
            await deps.connectLinks.withdraw(link, caller.name)
        }
        const { isRevoked } = await deps
          .remove(name, caller.name, ifMatch(c), options)
          .catch(async (error: unknown) => {
            // An earlier request may have been interrupted between the removal and the links.
            if (erase && hasCode(error, 'credential_not_found')) await withdrawLinks()
            throw error
          })
        if (erase) await withdrawLinks()
        c.header('Revocation', isRevoked ? 'confirmed' : 'unconfirmed')
        return c.body(null, 204)
      },
    )
}

/**
 * Returns a credential as the response of a request that has changed it may show it to the caller. Without
 * `credentials:read`, the label, the name, the tags and the fault are left out, because another request may have stored them. What
 * the request itself has brought is shown.
 *
 * @param brought the label and tags of the request
 */
export function changedCredential(
  caller: Caller,
  view: CredentialView,
  brought: { readonly label?: unknown; readonly tags?: unknown } = {},
): CredentialView {
  if (caller.has('credentials:read')) return view
  const { Label, Tags, CompanyName: _name, Fault: _fault, ...shown } = view
  return {
    ...shown,
    ...(brought.label !== undefined && Label !== undefined && { Label }),
    ...(brought.tags !== undefined && Tags !== undefined && { Tags }),
  }
}
