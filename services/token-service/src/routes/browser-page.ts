/** The HTML pages that a browser sees at the end of an authorization. */
import type { Context } from 'hono'
import { html } from 'hono/html'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { IntegrationError } from '@integration-host/shared/errors'
import { problemOf, problemResponse } from '@integration-host/shared/http/problem'

/** Responds to an error with an HTML page if the client accepts one, else with a problem document. */
export async function forBrowser(c: Context, work: () => Promise<Response>): Promise<Response> {
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

/** Returns a page of a heading and one paragraph. Both texts are escaped. */
export const page = (title: string, text: string) =>
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
