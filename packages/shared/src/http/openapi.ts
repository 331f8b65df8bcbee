import type { Hono } from 'hono'
import { describeRoute, generateSpecs, resolver } from 'hono-openapi'
import { Problem } from '../errors.ts'
import { createReferencePage, SCRIPT_PATH } from './reference-page.ts'
import { getPath } from 'hono/utils/url'

interface Operation {
  description?: string
  responses?: Readonly<Record<string, { readonly description?: string }>>
  readonly 'x-scope'?: string
  security?: readonly Readonly<Record<string, readonly string[]>>[]
}

export type Content = Readonly<Record<string, { readonly schema: Record<string, unknown> }>>

/** The OpenAPI `content` of a problem document. */
export const PROBLEM_CONTENT = {
  'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } },
}

/** Returns the OpenAPI description of an optional request header. */
export const headerParameter = (name: string, description: string) => ({
  name,
  in: 'header' as const,
  required: false,
  description,
  schema: { type: 'string' as const },
})

interface Documentation {
  readonly title: string
  readonly description: string
  /** The OpenAPI `content` of the error responses that every route may return. */
  readonly errorContent: Content
  readonly needsKey: (path: string) => boolean
}

/** The paths that `documentRoutes` serves. */
export const DOCUMENTATION_PATHS = ['/', '/docs', SCRIPT_PATH, '/openapi.json', '/favicon.ico']

/**
 * Adds the routes of the documentation. `GET /openapi.json` returns a document that is generated from the schemas of
 * the routes. `GET /docs` returns a page that shows the document, and `GET /` redirects to this page. Browsers request
 * `/favicon.ico` for each page, so this path responds 204.
 */
export function documentRoutes(app: Hono, documentation: Documentation): void {
  const { needsKey, errorContent, ...info } = documentation
  const error = (description: string) => ({ description, content: errorContent })
  const generate = async () => {
    const document = await generateSpecs(app, {
      excludeStaticFile: false, // keeps `/openapi.json` in the document
      defaultValidationErrorResponse: error('the request is not as described'),
      documentation: {
        openapi: '3.1.0',
        info: { ...info, version: '1' },
        components: {
          securitySchemes: { serviceKey: { type: 'http', scheme: 'bearer' } },
          schemas: { Problem: (await resolver(Problem).toOpenAPISchema()).schema },
        },
      },
    })
    document.paths = Object.fromEntries(
      Object.entries(document.paths).map(([path, item]) => [publicPath(path), item]),
    )
    for (const { path, method, operation } of operationsOf(document)) {
      const hasKey = operation['x-scope'] !== undefined || needsKey(path)
      operation.responses = {
        ...(!('default' in (operation.responses ?? {})) && {
          500: error('an error of the service itself'),
        }),
        ...(method !== 'get' && { 413: error('the body is too large') }),
        ...(hasKey && {
          400: error('the request is not as described'),
          401: error('no valid service key'),
          503: error('the service, or something that it needs, is not available'),
        }),
        ...operation.responses,
      }
      if (hasKey) operation.security = [{ serviceKey: [] }]
      const scope = operation['x-scope'] && `Requires the scope \`${operation['x-scope']}\`.`
      if (scope) operation.description = [operation.description, scope].filter(Boolean).join('\n\n')
    }
    return document
  }
  // The document is generated only once, at the first request. Otherwise unauthenticated clients could cause much work,
  // because the document needs no key and generating it takes 3 to 15 ms.
  let generated: ReturnType<typeof generate> | null = null
  const specs = () => (generated ??= generate())
  const page = createReferencePage(info)
  app.get(
    '/openapi.json',
    describeOperation('getOpenApiDocument', 'This document', {
      200: {
        description: 'OpenAPI 3.1',
        content: { 'application/json': { schema: { type: 'object' } } },
      },
    }),
    async (c) => c.json(await specs()),
  )
  app.get(
    '/docs',
    describeOperation('showDocumentation', 'This document as a page', {
      200: text('the page', 'html'),
    }),
    (c) => page.respond(c),
  )
  // The page does not show the following routes, because clients of the API do not need them.
  const hidden = { 'x-scalar-ignore': true }
  app.get(
    SCRIPT_PATH,
    describeOperation(
      'getDocumentationScript',
      'The script of the documentation page',
      { 200: text('the script', 'javascript') },
      hidden,
    ),
    (c) => page.respondScript(c),
  )
  app.get(
    '/',
    describeOperation(
      'redirectToDocumentation',
      'Redirects to the documentation page',
      { 302: { description: 'to /docs' } },
      hidden,
    ),
    (c) => c.redirect('/docs', 302),
  )
  app.get(
    '/favicon.ico',
    describeOperation(
      'getFavicon',
      'Nothing: the service has no icon',
      { 204: { description: 'no icon' } },
      hidden,
    ),
    (c) => c.body(null, 204),
  )
}

const text = (description: string, subtype: string) => ({
  description,
  content: { [`text/${subtype}`]: { schema: { type: 'string' as const } } },
})

/** Describes a route for the operation of a service. */
export const describeOperation = (
  operationId: string,
  summary: string,
  responses: NonNullable<Parameters<typeof describeRoute>[0]['responses']>,
  further: Readonly<Record<string, unknown>> = {},
) => describeRoute({ ...further, operationId, tags: ['operations'], summary, responses })

function operationsOf(document: { readonly paths: object }) {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item as Readonly<Record<string, Operation>>).map(([method, operation]) => ({
      path,
      method,
      operation,
    })),
  )
}

/**
 * Supports a fixed path beside a path with a parameter, such as `/credentials/summary` beside `/credentials/:name`.
 *
 * Hono's fast router (RegExpRouter) rejects such a pair. With Hono's slower router, which would then serve every path
 * of the service, the rate of token issuance is 7 % lower. The fixed path is therefore registered with `#` in place of
 * its last slash. No request can have a path with `#`: a client does not send the fragment of a URL, and `%23` is not
 * decoded to `#` (RFC 3986, sections 2.2 and 3.5).
 */
export const routedFixedPath = (path: string): string => path.replace(/\/(?=[^/]*$)/, '#')

/** Returns the path that clients know, for logs, metrics and documentation. */
export const publicPath = (routed: string): string => routed.replace('#', '/')

/**
 * Returns the function with which Hono reads the path of a request. The function maps each of `fixedPaths` to the path
 * under which its route is registered.
 */
export function pathsWith(fixedPaths: readonly string[]): (request: Request) => string {
  const routed = new Map(fixedPaths.map((path) => [path, routedFixedPath(path)]))
  return (request) => {
    const path = getPath(request)
    return routed.get(path) ?? path
  }
}
