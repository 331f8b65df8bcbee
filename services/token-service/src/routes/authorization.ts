import type { ActionQuota } from '../credential/action-quota.ts'
import { type Context, Hono } from 'hono'
import { html } from 'hono/html'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { Label, Tags } from '@integration-host/shared/contracts/text'
import { CredentialName, Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { rejectHead, rejectSubresource } from '@integration-host/shared/http/origin-guard'
import type { NetworkOf } from '@integration-host/shared/http/peer-network'
import type { PageContent } from '@integration-host/shared/http/page'
import { callerOf, needs, requireRealm } from '@integration-host/shared/http/access'
import { responses, textResponse, validate } from '@integration-host/shared/http/service-app'
import {
  type Authorization,
  type Callback,
  MAX_RETURN_TO_LENGTH,
} from '../authorization/authorization-request.ts'
import type { CompleteAuthorization } from '../authorization/callback.ts'
import type { CodeExchanges } from '../authorization/code-exchange.ts'
import type { ExchangeAdmission } from '../authorization/exchange-admission.ts'
import type { AuthorizationRequest } from '../authorization/sealed-request.ts'
import { button, type FormTarget, type Pages } from './browser-page.ts'
import {
  atOwnOrigin,
  browserProblems,
  type ConnectedCompany,
  createBrowserCookie,
} from './browser-session.ts'
import { Code, readCallback, single } from './callback-parameters.ts'
import { changedCredential } from './changed-credential.ts'
import { requireJson } from './json-body.ts'

export const ReturnTo = z.string().min(1).max(MAX_RETURN_TO_LENGTH)

const StartBody = z
  .strictObject({
    return_to: ReturnTo.optional(),
    realm: Realm.optional(),
    label: Label.optional(),
    tags: Tags.optional(),
  })
  .meta({ ref: 'StartAuthorization' })
const StartedView = z
  .object({ url: z.url(), state: z.string(), expires_at: z.iso.datetime() })
  .meta({ ref: 'StartedAuthorization' })
const ExchangeBody = z.strictObject({ RealmID: Realm, Code }).meta({ ref: 'ExchangeCode' })

export interface AuthorizationRoutesDeps {
  readonly authorization: Pick<Authorization, 'start' | 'requestOf'>
  readonly completeAuthorization: CompleteAuthorization
  readonly exchanges: Pick<CodeExchanges, 'exchange'>
  readonly admission: ExchangeAdmission
  readonly actionQuota: ActionQuota
  readonly networkOf: NetworkOf
  /** Whether any client can start an authorization with `GET /authorize` (the setting `AUTHORIZE`). */
  readonly isAuthorizeOpen: boolean
  /** The setting `REDIRECT`: the URL of this service to which the provider redirects browsers. */
  readonly redirectUri: URL
  readonly pages: Pages
  readonly connectedCompany: ConnectedCompany
  /** Returns the name by which people know the company of a credential; `null` if it has none, or is not stored. */
  readonly nameOf: (name: string) => Promise<string | null>
  /** Resolves when the name of a company that was just connected is read, or after a short time. */
  readonly nameSettled: (name: string) => Promise<void>
}

/**
 * The routes of the authorization code flow (RFC 6749 §4.1): the start, the callback of the provider, and the final
 * page.
 */
export function authorizationRoutes(deps: AuthorizationRoutesDeps): Hono {
  const { authorization, completeAuthorization, exchanges, admission, redirectUri } = deps
  const tags = ['authorization']
  const cookie = createBrowserCookie(redirectUri)
  const company = deps.connectedCompany
  const { forBrowser, page, productOr } = deps.pages

  async function complete(c: Context, callback: Callback): Promise<Response> {
    const completed = await completeAuthorization(callback)
    if (completed.kind === 'denied') return denied(c, callback.error, completed.returnTo)
    const { credential, returnTo } = completed
    if (returnTo === null) company.remember(c, credential)
    return c.redirect(returnTo ?? `/connected?name=${credential.Name}`, 302)
  }

  /**
   * Returns what a browser can do after its authorization has failed: start another one in the way in which it started
   * this one, or go back to `return_to`. The state cannot be used again, and the page must not contain it.
   */
  function nextStepOf(request: AuthorizationRequest, scriptNonce: string): PageContent | null {
    const { browser, returnTo } = request
    if (browser !== null) return button('Start again', scriptNonce, startOf(request))
    return returnTo === null
      ? null
      : html`<p><a href="${returnTo}">Back to ${new URL(returnTo).host}</a></p>`
  }

  /** Returns the name of a company with its id, if this browser has just connected it and its name is known. */
  async function connectedName(c: Context, name: string): Promise<string | null> {
    if (!company.isRemembered(c, name)) return null
    await deps.nameSettled(name)
    const text = await deps.nameOf(name).catch(() => null)
    return text === null ? null : `${text} (${name})`
  }

  return new Hono()
    .post(
      '/authorizations',
      needs('credentials:manage'),
      describeRoute({
        operationId: 'startAuthorization',
        tags,
        summary: "Starts an authorization: where to send the operator's browser",
        responses: responses({ 201: StartedView }, 'quota_exceeded'),
      }),
      requireJson,
      validate('json', StartBody),
      async (c) => {
        const { return_to = null, realm = null, ...labels } = c.req.valid('json')
        // Without a realm in the request, any company can be connected.
        if (realm === null) callerOf(c).requireEveryRealm()
        else requireRealm(c, realm)
        const keyId = callerOf(c).shareOf
        const wanted = { returnTo: return_to, realm, browser: null, keyId, ...labels }
        const started = await authorization.start(wanted)
        const expires_at = new Date(started.expiresAt).toISOString()
        return c.json({ url: started.url, state: started.state, expires_at }, 201)
      },
    )
    .get(
      '/authorize',
      describeRoute({
        operationId: 'authorize',
        tags,
        summary: 'Starts an authorization and sends this browser to the provider',
        responses: {
          302: { description: 'to the provider' },
          ...browserProblems(
            'invalid_request',
            'forbidden',
            'method_not_allowed',
            'provider_unavailable',
          ),
        },
      }),
      (c) =>
        forBrowser(c, async () => {
          rejectHead(c, 'GET')
          rejectSubresource(c)
          const own = atOwnOrigin(c, redirectUri)
          if (own !== null) return c.redirect(own, 302)
          if (!deps.isAuthorizeOpen)
            throw new IntegrationError(
              'forbidden',
              'This installation connects companies by link only. Ask its operators for a connect link. (Operators: POST /connect-links creates one; the setting AUTHORIZE=open opens this address for everyone.)',
            )
          const returnTo = single(c, ['return_to'], ReturnTo)
          return cookie.authorize(c, (browser) =>
            authorization.start({ returnTo, realm: null, browser }),
          )
        }),
    )
    .get(
      '/callback',
      describeRoute({
        operationId: 'receiveCallback',
        tags,
        summary: "The provider's redirect with code, realmId and state",
        responses: {
          302: { description: 'to return_to, or to /connected' },
          ...browserProblems(
            'authorization_invalid',
            'authorization_denied',
            'method_not_allowed',
            'realm_mismatch',
            'daily_actions_used',
            'code_exchange_failed',
            'busy',
            'store_unavailable',
          ),
        },
      }),
      (c) =>
        forBrowser(c, async () => {
          rejectHead(c, 'GET, POST')
          const callback = readCallback(c, cookie.read(c), deps.networkOf(c))
          const request = authorization.requestOf(callback) // throws for another browser
          return forBrowser(
            c,
            () => complete(c, callback),
            (nonce) => nextStepOf(request, nonce),
          )
        }),
    )
    .post(
      '/callback',
      needs('credentials:manage'),
      describeRoute({
        operationId: 'exchangeCode',
        tags,
        summary: 'Exchanges a code that another application received',
        responses: responses({ 201: CredentialView }, 'code_exchange_failed'),
      }),
      requireJson,
      validate('json', ExchangeBody),
      async (c) => {
        const { RealmID, Code: code } = c.req.valid('json')
        requireRealm(c, RealmID)
        const unbound = { state: null, nonce: null, codeVerifier: null, returnTo: null }
        const wanted = {
          code,
          realm: RealmID,
          who: callerOf(c).name,
          labels: {},
          isByVisitor: false,
          ...unbound,
        }
        await deps.actionQuota.take(callerOf(c).keyId, 1)
        const permit = await admission.admit('key', callerOf(c).shareOf ?? deps.networkOf(c))
        try {
          return c.json(changedCredential(callerOf(c), await exchanges.exchange(wanted)), 201)
        } finally {
          permit.release(true)
        }
      },
    )
    .get(
      '/connected',
      describeRoute({
        operationId: 'showConnected',
        tags,
        summary: 'The page at the end of a successful authorization',
        responses: { 200: textResponse('the page', 'text/html') },
      }),
      (c) =>
        // The page must not be cached, because it depends on a cookie.
        forBrowser(c, async () => {
          const { data: name } = CredentialName.safeParse(c.req.query('name'))
          const known =
            name === undefined ? 'The company' : ((await connectedName(c, name)) ?? name)
          return c.html(
            page(
              'Connected',
              `${known} is connected${productOr('') === '' ? '' : ` to ${productOr('')}`}. What has waited for it continues by itself. This window can be closed.`,
            ),
          )
        }),
    )
}

/** Returns the form that starts an authorization in the way in which a browser has started this one. */
function startOf({ linkId, realm, returnTo }: AuthorizationRequest): FormTarget {
  if (linkId !== null) return { method: 'post', action: `connect/again/${linkId}` }
  if (realm !== null) return { method: 'get', action: 'reconnect', fields: { realmId: realm } }
  return {
    method: 'get',
    action: 'authorize',
    fields: returnTo === null ? {} : { return_to: returnTo },
  }
}

function denied(c: Context, error: string | null, returnTo: string | null): Response {
  if (returnTo === null) {
    throw new IntegrationError(
      'authorization_denied',
      error === null || error === 'access_denied'
        ? 'the authorization was denied; nothing was stored'
        : `the provider did not grant the authorization: ${error}; nothing was stored`,
    )
  }
  const url = new URL(returnTo)
  url.searchParams.set('error', error ?? 'access_denied')
  return c.redirect(url.href, 302)
}
