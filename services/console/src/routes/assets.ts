import { problemResponse } from '@integration-host/shared/http/problem'
import { problemResponses, textResponse } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import type { Asset, BuiltApp } from '../build-app.ts'
import { pages } from '../isomorphic/pages.ts'
import { IntegrationError } from '@integration-host/shared/errors'

const YEAR_SECONDS = 31_536_000

/**
 * Serves the program that runs in the browser. Every page is the same HTML without data and needs no session. When a
 * person follows a link from another site, the browser does not send a cookie with `SameSite=Strict`. The program then
 * reads the data by separate requests, which have the cookie.
 */
export function assetRoutes(app: BuiltApp): Hono {
  const routes = new Hono()
  const byPath = new Map(app.assets.map((asset) => [asset.path, asset]))
  for (const [name, path] of Object.entries(pages))
    routes.get(
      path,
      describeRoute({
        operationId: `get${name.charAt(0).toUpperCase()}${name.slice(1)}Page`,
        tags: ['pages'],
        summary: `The page ${path}`,
        responses: {
          200: textResponse('HTML without data', 'text/html'),
        },
      }),
      (c) => send(c, app.shell, 'no-cache'),
    )
  return routes.get(
    '/assets/:file',
    describeRoute({
      operationId: 'getAsset',
      tags: ['pages'],
      summary:
        'A file of the browser program, or a document; its name contains a hash of its content',
      responses: {
        200: {
          description: 'the file',
          content: {
            'text/javascript': { schema: { type: 'string' } },
            'text/css': { schema: { type: 'string' } },
            'text/plain': { schema: { type: 'string' } },
          },
        },
        ...problemResponses({ 404: 'no such file' }),
      },
    }),
    (c) => {
      const asset = byPath.get(c.req.path)
      if (asset === undefined) throw new IntegrationError('not_found', 'There is no such file')
      return send(c, asset, `public, max-age=${YEAR_SECONDS}, immutable`)
    },
  )
}

/**
 * Returns the response to a failed request. If a person has opened an address that does not exist, the response is the
 * program of the browser, which says so. The other responses are problem documents.
 */
export const respondToFailure =
  ({ shell }: BuiltApp) =>
  (c: Context, error: unknown): Response =>
    isUnknownPage(c, error) ? send(c, shell, 'no-cache', 404) : problemResponse(c, error)

function isUnknownPage({ req }: Context, error: unknown): boolean {
  const isPage = !['/api/', '/assets/'].some((folder) => req.path.startsWith(folder))
  return (
    error instanceof IntegrationError &&
    error.code === 'not_found' &&
    isPage &&
    // Programs accept every type, but a browser names HTML when a person opens an address.
    (req.header('Accept') ?? '').includes('text/html')
  )
}

function send(
  c: Context,
  { type, body, gzip }: Asset,
  cacheControl: string,
  status: 200 | 404 = 200,
): Response {
  const isZipped = /\bgzip\b/.test(c.req.header('Accept-Encoding') ?? '')
  return c.body(new Uint8Array(isZipped ? gzip : body), status, {
    'Content-Type': type,
    'Cache-Control': cacheControl,
    Vary: 'Accept-Encoding',
    ...(isZipped && { 'Content-Encoding': 'gzip' }),
  })
}
