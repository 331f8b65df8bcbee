import { randomBytes } from 'node:crypto'
import { type Context, Hono } from 'hono'
import { getCookie, setCookie } from 'hono/cookie'
import { html } from 'hono/html'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { CredentialName, Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { isLoopback } from '@integration-host/shared/http/loopback'
import { problemOf, problemResponse } from '@integration-host/shared/http/problem'
import type { Secret } from '@integration-host/shared/secrets/secret'
import {
  isAuthorized,
  jsonResponse,
  problemResponses,
  textResponse,
  validate,
} from '@integration-host/shared/http/service-app'
import {
  AUTHORIZATION_TTL_MS,
  type Authorization,
  type Callback,
} from '../authorization/authorization-request.ts'
import type { CodeExchanges } from '../authorization/code-exchange.ts'
import { callerOf } from './caller.ts'
import { requireJson } from './json-body.ts'

/** As a provider sends it; RFC 6749 appendix A.11 allows visible ASCII. */
const Code = z.string().regex(/^[\x21-\x7e]{1,2048}$/, 'must be 1-2048 visible characters')
const ReturnTo = z.string().min(1).max(2048)

const StartBody = z.strictObject({ return_to: ReturnTo.optional(), realm: Realm.optional() })
const StartedView = z.object({ url: z.url(), state: z.string(), expires_at: z.iso.datetime() })
const ExchangeBody = z.strictObject({ RealmID: Realm, Code })

export interface AuthorizationRoutesDeps {
  readonly authorization: Authorization
  readonly exchanges: CodeExchanges
  /** Service keys for `POST /callback`, whose path needs none for the provider's redirect. */
  readonly keys: readonly Secret[]
  /** Where the provider redirects browsers to: the setting `REDIRECT`. */
  readonly redirectUri: URL
}

/** `responses` entries of the routes that browsers use: an HTML page for a browser, else a problem document. */
const browserProblems = (statuses: Readonly<Record<number, string>>) =>
  Object.fromEntries(
    Object.entries(problemResponses(statuses)).map(([status, { description, content }]) => [
      status,
      { description, content: { ...content, ...textResponse(description, 'text/html').content } },
    ]),
  )

/** The authorization code flow, from the operator's click to the stored credential (RFC 6749 §4.1). */
export function authorizationRoutes(deps: AuthorizationRoutesDeps): Hono {
  const { authorization, exchanges, redirectUri } = deps
  const isSecure = redirectUri.protocol === 'https:'
  const tags = ['authorization']
  // A __Host- cookie cannot be planted by a sibling domain or over http.
  const cookieName = isSecure ? '__Host-authorization' : 'authorization'

  const browserOf = (c: Context): string | null => {
    const cookie = getCookie(c, cookieName)
    return cookie !== undefined && /^[A-Za-z0-9_-]{43}$/.test(cookie) ? cookie : null
  }

  /** Responds to errors with an HTML page if the client accepts one, else with a problem document. */
  async function forBrowser(c: Context, work: () => Promise<Response>): Promise<Response> {
    c.header('Cache-Control', 'no-store')
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof IntegrationError) || !c.req.header('accept')?.includes('text/html'))
        throw error
      const { status } = problemResponse(c, error)
      const { title, detail = '' } = problemOf(error)
      return c.html(page(title, detail), status as ContentfulStatusCode)
    }
  }

  return new Hono()
    .post(
      '/authorizations',
      describeRoute({
        tags,
        summary: "Starts an authorization: where to send the operator's browser",
        responses: {
          201: jsonResponse('started', StartedView),
          ...problemResponses({
            400: 'bad return_to or realm',
            415: 'not application/json',
            503: 'the discovery document of the provider was not fetched yet',
          }),
        },
      }),
      requireJson,
      validate('json', StartBody),
      async (c) => {
        const { return_to = null, realm = null } = c.req.valid('json')
        const started = await authorization.start({ returnTo: return_to, realm, browser: null })
        const expires_at = new Date(started.expiresAt).toISOString()
        return c.json({ url: started.url, state: started.state, expires_at }, 201)
      },
    )
    .get(
      '/authorize',
      describeRoute({
        tags,
        summary: 'Starts an authorization and sends this browser to the provider',
        responses: {
          302: { description: 'to the provider' },
          ...browserProblems({
            400: 'bad return_to',
            503: 'the discovery document of the provider was not fetched yet',
          }),
        },
      }),
      (c) =>
        forBrowser(c, async () => {
          const ownOrigin = loopbackOriginFor(new URL(c.req.url), redirectUri)
          if (ownOrigin !== null)
            return c.redirect(`${ownOrigin}/authorize${new URL(c.req.url).search}`, 302)
          const returnTo = single(c, ['return_to'], ReturnTo)
          // One cookie for all authorizations of a browser, so that two tabs do not invalidate each other.
          const browser = browserOf(c) ?? randomBytes(32).toString('base64url')
          const { url } = await authorization.start({ returnTo, realm: null, browser })
          setCookie(c, cookieName, browser, {
            httpOnly: true,
            sameSite: 'Lax', // the callback is a top-level navigation from the provider's site
            secure: isSecure,
            path: '/',
            maxAge: AUTHORIZATION_TTL_MS / 1_000,
          })
          return c.redirect(url, 302)
        }),
    )
    .get(
      '/callback',
      describeRoute({
        tags,
        summary: "The provider's redirect with code, realmId and state",
        responses: {
          302: { description: 'to return_to, or to a page that says connected' },
          ...browserProblems({
            400: 'the state is not valid, or the authorization was denied',
            409: 'another company was chosen',
            502: 'the code could not be exchanged',
          }),
        },
      }),
      (c) =>
        forBrowser(c, async () => {
          // A HEAD request of a prefetching browser or a scanner must not use up the state.
          if (c.req.method === 'HEAD') {
            c.header('Allow', 'GET, POST')
            throw new IntegrationError('method_not_allowed', 'use GET')
          }
          const callback = readCallback(c, browserOf(c))
          const checked = await authorization.check(callback)
          if (checked.kind === 'repeated') {
            const { credential, returnTo } = await exchanges.repeated(checked.code, checked.realm)
            return connected(c, credential, returnTo)
          }
          const { request } = checked
          if (checked.kind === 'denied') return denied(c, callback, request.returnTo)
          const credential = await exchanges.exchange({
            code: checked.code,
            realm: checked.realm,
            state: callback.state,
            nonce: request.nonce,
            codeVerifier: request.codeVerifier,
            returnTo: request.returnTo,
            who: 'browser',
          })
          return connected(c, credential, request.returnTo)
        }),
    )
    .post(
      '/callback',
      describeRoute({
        tags,
        summary: 'CodeExchanges a code that an application received itself',
        responses: {
          201: jsonResponse('the credential', CredentialView),
          ...problemResponses({
            400: 'bad RealmID or Code',
            401: 'no valid key',
            415: 'not application/json',
            502: 'the code could not be exchanged',
          }),
        },
      }),
      async (c, next) => {
        if (!isAuthorized(c.req.header('Authorization'), deps.keys)) {
          throw new IntegrationError(
            'unauthorized',
            'present a service key as Authorization: Bearer …',
          )
        }
        await next()
      },
      requireJson,
      validate('json', ExchangeBody),
      async (c) => {
        const { RealmID, Code: code } = c.req.valid('json')
        const unbound = { state: null, nonce: null, codeVerifier: null, returnTo: null }
        const who = callerOf(c)
        return c.json(await exchanges.exchange({ code, realm: RealmID, who, ...unbound }), 201)
      },
    )
    .get(
      '/connected',
      describeRoute({
        tags,
        summary: 'A page that says connected',
        responses: { 200: textResponse('the page', 'text/html') },
      }),
      (c) => {
        const name = CredentialName.safeParse(c.req.query('name'))
        return c.html(
          page(
            'Connected',
            `${name.success ? name.data : 'The company'} is connected. This window can be closed.`,
          ),
        )
      },
    )
}

/**
 * The origin at which an authorization must start if `requested` names this service by another loopback name
 * than `REDIRECT` does, else `null`. A browser does not send a cookie set for `127.0.0.1` to `localhost`, which
 * is the only loopback name that Intuit accepts. Only for the same port: behind a proxy that rewrites `Host`,
 * the redirect would loop.
 */
function loopbackOriginFor(requested: URL, redirectUri: URL): string | null {
  const isSameService =
    isLoopback(requested.hostname) &&
    isLoopback(redirectUri.hostname) &&
    requested.port === redirectUri.port
  return isSameService && requested.hostname !== redirectUri.hostname ? redirectUri.origin : null
}

function connected(c: Context, credential: CredentialView, returnTo: string | null): Response {
  return c.redirect(returnTo ?? `/connected?name=${credential.Name}`, 302)
}

function denied(c: Context, callback: Callback, returnTo: string | null): Response {
  if (returnTo === null) {
    const { error } = callback
    throw new IntegrationError(
      'authorization_denied',
      error === null || error === 'access_denied'
        ? 'the authorization was denied; nothing was stored'
        : `the provider did not grant the authorization: ${error}; nothing was stored`,
    )
  }
  const url = new URL(returnTo)
  url.searchParams.set('error', callback.error ?? 'access_denied')
  return c.redirect(url.href, 302)
}

/** @throws {IntegrationError} `invalid_request` */
function readCallback(c: Context, browser: string | null): Callback {
  const state = single(
    c,
    ['state'],
    z.string().regex(/^[\x20-\x7e]{1,512}$/, 'is not a state that this service issued'),
  )
  const error = single(c, ['error'], z.string().regex(/^[\x20-\x7e]{1,256}$/, 'must be printable'))
  // RFC 6749 §4.1.2.1 requires the state with an error as well; Intuit does not document whether it sends it.
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
    realm: single(c, ['realmId', 'RealmID'], Realm),
    error: error === null || /^[a-z_]{1,64}$/.test(error) ? error : 'unknown_error',
    issuer: single(c, ['iss'], z.string().max(2048)),
    browser,
  }
}

/** A query parameter under any of its spellings, at most once in all; `null` if it is absent or empty. */
function single(c: Context, names: readonly string[], schema: z.ZodType<string>): string | null {
  const all = names.flatMap((name) => c.req.queries(name) ?? [])
  const [value] = all
  const label = names[0] ?? ''
  if (all.length < 2 && (value === undefined || value === '')) return null
  const parsed = schema.safeParse(value)
  const problem = all.length > 1 ? 'occurs more than once' : parsed.error?.issues[0]?.message
  if (problem !== undefined) throw new IntegrationError('invalid_request', `${label}: ${problem}`)
  return value ?? null
}

const page = (title: string, text: string) =>
  html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <title>${title}</title>
      </head>
      <body>
        <h1>${title}</h1>
        <p>${text}</p>
      </body>
    </html>`
