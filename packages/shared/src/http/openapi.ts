import type { Hono } from 'hono'
import { html } from 'hono/html'
import { describeRoute, generateSpecs, resolver } from 'hono-openapi'
import { Problem } from '../contracts/problem.ts'
import { publicPath } from './fixed-path.ts'

interface Operation {
  readonly summary?: string
  readonly description?: string
  readonly parameters?: readonly {
    readonly name?: string
    readonly in?: string
    readonly required?: boolean
  }[]
  responses?: Readonly<Record<string, { readonly description?: string }>>
  readonly 'x-scope'?: string
  security?: readonly Readonly<Record<string, readonly string[]>>[]
}

export type Content = Readonly<Record<string, { readonly schema: Record<string, unknown> }>>

/** The OpenAPI `content` of a problem document. */
export const PROBLEM_CONTENT = {
  'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } },
}

interface Documentation {
  readonly title: string
  readonly description: string
  /** The OpenAPI `content` of the error responses that every route may return. */
  readonly errorContent: Content
  readonly needsKey: (path: string) => boolean
}

/**
 * Adds two routes. `GET /openapi.json` returns a document that is generated from the schemas of the routes. `GET /docs`
 * returns a page that shows this document and loads nothing from other hosts.
 */
export function documentRoutes(app: Hono, documentation: Documentation): void {
  const { needsKey, errorContent, ...info } = documentation
  const error = (description: string) => ({ description, content: errorContent })
  const generate = async () => {
    const document = await generateSpecs(app, {
      excludeStaticFile: false, // `/openapi.json` is a route too
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
        ...(hasKey && { 401: error('no valid service key') }),
        ...operation.responses,
      }
      if (hasKey) operation.security = [{ serviceKey: [] }]
    }
    return document
  }
  // Any client may request the document without a key, and generating it takes 3 to 15 ms of processor time. It is
  // generated at the first request, when all routes have been added, and never changes.
  let generated: ReturnType<typeof generate> | null = null
  const specs = () => (generated ??= generate())
  const tags = ['operations']
  app.get(
    '/openapi.json',
    describeRoute({
      tags,
      summary: 'This document',
      responses: {
        200: {
          description: 'OpenAPI 3.1',
          content: { 'application/json': { schema: { type: 'object' } } },
        },
      },
    }),
    async (c) => c.json(await specs()),
  )
  app.get(
    '/docs',
    describeRoute({
      tags,
      summary: 'This document as a page',
      responses: {
        200: {
          description: 'the page',
          content: { 'text/html': { schema: { type: 'string' } } },
        },
      },
    }),
    async (c) => c.html(page(info, operationsOf(await specs()))),
  )
}

function operationsOf(document: { readonly paths: object }) {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item as Readonly<Record<string, Operation>>).map(([method, operation]) => ({
      path,
      method,
      operation,
    })),
  )
}

const page = (
  info: { readonly title: string; readonly description: string },
  operations: ReturnType<typeof operationsOf>,
) =>
  html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <title>${info.title}</title>
        <style>
          body {
            font:
              16px/1.5 system-ui,
              sans-serif;
            max-width: 60rem;
            margin: 2rem auto;
            padding: 0 1rem;
          }
          code {
            font-family: ui-monospace, monospace;
          }
          section {
            border-top: 1px solid #ccc;
            padding: 0.5rem 0;
          }
          th {
            text-align: left;
            padding-right: 1rem;
            font-weight: normal;
            vertical-align: top;
          }
        </style>
      </head>
      <body>
        <h1>${info.title}</h1>
        <p>${info.description}</p>
        <p>The machine-readable document: <a href="/openapi.json">/openapi.json</a></p>
        ${operations.map(
          ({ path, method, operation }) =>
            html`<section>
              <h2><code>${method.toUpperCase()} ${path}</code></h2>
              <p>${operation.summary ?? ''} ${operation.description ?? ''}</p>
              ${operation['x-scope'] && html`<p>Requires the scope <code>${operation['x-scope']}</code>.</p>`}
              <table>
                ${(operation.parameters ?? []).map(
                  (parameter) =>
                    html`<tr>
                      <th><code>${parameter.name ?? ''}</code></th>
                      <td>${parameter.in ?? ''}${parameter.required ? ', required' : ''}</td>
                    </tr>`,
                )}
                ${Object.entries(operation.responses ?? {}).map(
                  ([status, response]) =>
                    html`<tr>
                      <th>${status}</th>
                      <td>${response.description ?? ''}</td>
                    </tr>`,
                )}
              </table>
            </section>`,
        )}
      </body>
    </html>`
