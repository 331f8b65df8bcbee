/** The HTML pages that a browser sees at the end of an authorization. */
import type { Context } from 'hono'
import { html } from 'hono/html'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { IntegrationError } from '@integration-host/shared/errors'
import { PAGE_POLICY, PAGE_STYLE_SOURCE, smallPage } from '@integration-host/shared/http/small-page'
import { problemOf, problemResponse } from '@integration-host/shared/http/problem'

/** Responds to an error with an HTML page if the client accepts HTML, and with a problem document otherwise. */
export async function forBrowser(c: Context, work: () => Promise<Response>): Promise<Response> {
  c.header('Cache-Control', 'no-store')
  c.header('Content-Security-Policy', PAGE_POLICY)
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

/** The HTML that the page shows below its paragraph. */
type PageContent = ReturnType<typeof html>

/**
 * Returns an HTML page with a heading, one paragraph, and `content` below them. Heading and paragraph are escaped.
 *
 * The page overrides the header `Referrer-Policy: no-referrer`, under which browsers send `Origin: null` with a form
 * (Fetch, section 3.2). {@link requireSameOrigin} needs the origin if a browser does not support Fetch Metadata. The
 * policy of the page sends no referrer to other origins.
 */
export const page = (title: string, text: string, content?: PageContent) =>
  smallPage(
    title,
    html`<h1>${title}</h1>
      <p>${text}</p>
      ${content ?? ''}`,
    html`<meta name="referrer" content="same-origin" />`,
  )

/**
 * Returns a form with one button that sends a POST to the URL of the page. A script disables the button after the first
 * click, because a second click would cancel the request and send it again. `scriptNonce` is the nonce in the page's
 * policy ({@link formPolicy}).
 */
export const button = (label: string, scriptNonce: string): PageContent =>
  html`<form method="post"><button>${label}</button></form>
    <script nonce="${scriptNonce}">
      document.forms[0].addEventListener('submit', (event) => {
        event.submitter.disabled = true
      })
    </script>`

/**
 * Returns the `Content-Security-Policy` of a page with a {@link button}. It has no `form-action`, because browsers
 * would also apply this directive to the redirect to the provider after the form.
 */
export const formPolicy = (scriptNonce: string): string =>
  `default-src 'none'; style-src ${PAGE_STYLE_SOURCE}; script-src 'nonce-${scriptNonce}'; base-uri 'none'; frame-ancestors 'none'`
