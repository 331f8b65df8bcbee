import type { Hono } from 'hono'
import { html } from 'hono/html'
import { generateSpecs } from 'hono-openapi'

interface Operation {
  readonly summary?: string
  readonly description?: string
  readonly parameters?: readonly {
    readonly name?: string
    readonly in?: string
    readonly required?: boolean
  }[]
  readonly responses?: Readonly<Record<string, { readonly description?: string }>>
}

/** `GET /openapi.json`, made from the routes' own schemas, and `GET /docs`, the same to read. No outside address. */
export function documentRoutes(
  app: Hono,
  info: { readonly title: string; readonly description: string },
): void {
  const specs = () =>
    generateSpecs(app, {
      documentation: {
        openapi: '3.1.0',
        info: { ...info, version: '1' },
        components: { securitySchemes: { serviceKey: { type: 'http', scheme: 'bearer' } } },
      },
    })
  app.get('/openapi.json', async (c) => c.json(await specs()))
  app.get('/docs', async (c) => {
    const { paths } = await specs()
    const operations = Object.entries(paths).flatMap(([path, item]) =>
      Object.entries(item ?? {}).map(([method, operation]) => ({
        path,
        method,
        operation: operation as Operation,
      })),
    )
    return c.html(
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
        </html>`,
    )
  })
}
