import { type Context, Hono } from 'hono'
import { html } from 'hono/html'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { Label, Tags } from '@integration-host/shared/contracts/text'
import { CredentialName, Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs, requireRealm } from '@integration-host/shared/http/request'
import { rejectHead } from '@integration-host/shared/http/origin-guard'
import type { PageContent } from '@integration-host/shared/http/page'
import { responses, textResponse, validate } from '@integration-host/shared/http/service-app'
import {
  type AuthorizationRequest,
  type Callback,
  MAX_RETURN_TO_LENGTH,
} from '../authorization/authorization-request.ts'
import { browserProblems, button, type FormTarget, realmParameter, single } from './browser.ts'
import { changedCredential } from './credentials.ts'
import { requireJson } from './request.ts'
import type { RouteDeps } from './route-deps.ts'

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
/** An authorization code, which consists of visible ASCII characters (RFC 6749 appendix A.11). */
const Code = z.string().regex(/^[\x21-\x7e]{1,2048}$/, 'must be 1-2048 visible characters')
const ExchangeBody = z.strictObject({ RealmID: Realm, Code }).meta({ ref: 'ExchangeCode' })

/**
 * The routes of the authorization code flow (RFC 6749 §4.1): the start, the callback of the provider, and the final
 * page.
 */
export function authorizationRoutes(deps: RouteDeps): Hono {
  const { authorization, completeAuthorization, exchanges, admission, browser } = deps
  const tags = ['authorization']
  const { forBrowser, page, productOr } = browser

  async function complete(c: Context, callback: Callback): Promise<Response> {
    const completed = await completeAuthorization(callback)
    if (completed.kind === 'denied') return denied(c, callback.error, completed.returnTo)
    const { credential, returnTo } = completed
    if (returnTo === null) browser.rememberConnected(c, credential.Name)
    return c.redirect(returnTo ?? `/connected?name=${credential.Name}`, 302)
  }

  /**
   * Returns what a browser can do after its authorization has failed: start another one in the way in which it started
   * this one, or go back to `return_to`. The state cannot be used again, and the page must not contain it.
   */
  function nextStepOf(request: AuthorizationRequest, scriptNonce: string): PageContent | null {
    const { returnTo } = request
    if (request.browser !== null) return button('Start again', scriptNonce, startOf(request))
    return returnTo === null
      ? null
      : html`<p><a href="${returnTo}">Back to ${new URL(returnTo).host}</a></p>`
  }

  /** Returns the name of a company with its id, if this browser has just connected it and its name is known. */
  async function connectedName(c: Context, name: string): Promise<string | null> {
    if (!browser.hasConnected(c, name)) return null
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
        browser.navigated(c, async () => {
          if (!deps.isAuthorizeOpen)
            throw new IntegrationError(
              'forbidden',
              'This installation connects companies by link only. Ask its operators for a connect link. (Operators: POST /connect-links creates one; the setting AUTHORIZE=open opens this address for everyone.)',
            )
          const returnTo = single(c, ['return_to'], ReturnTo)
          return browser.authorize(c, (id) =>
            authorization.start({ returnTo, realm: null, browser: id }),
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
          const callback = readCallback(c, browser.idOf(c), deps.networkOf(c))
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
        await deps.takeActions(callerOf(c).keyId, 1)
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

/**
 * Reads the parameters of the provider's redirect (RFC 6749 §4.1.2), to which the provider adds `realmId`. `browser` is the value of the authorization cookie; `null` if there
 * is none. `network` is the network of the browser.
 *
 * @throws {IntegrationError} `invalid_request`, `authorization_denied`, `authorization_invalid`
 */
function readCallback(c: Context, browser: string | null, network: string): Callback {
  const state = single(
    c,
    ['state'],
    z.string().regex(/^[\x20-\x7e]{1,2048}$/, 'is not a state that this service issued'),
  )
  const error = single(c, ['error'], z.string().regex(/^[\x20-\x7e]{1,256}$/, 'must be printable'))
  // RFC 6749 §4.1.2.1 requires the state in an error response, but Intuit does not document that it sends the state.
  if (state === null && error !== null)
    throw new IntegrationError(
      'authorization_denied',
      'the provider reports that the authorization was not granted; nothing was stored',
    )
  if (state === null)
    throw new IntegrationError('authorization_invalid', 'the callback has no state')
  return {
    state,
    code: single(c, ['code', 'Code'], Code),
    realm: realmParameter(c),
    error: error === null || /^[a-z_]{1,64}$/.test(error) ? error : 'unknown_error',
    issuer: single(c, ['iss'], z.string().max(2048)),
    browser,
    network,
  }
}
