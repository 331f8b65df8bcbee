/** The HTML pages that a browser sees at the end of an authorization. */
import { randomBytes } from 'node:crypto'
import type { Context } from 'hono'
import { html } from 'hono/html'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { IntegrationError } from '@integration-host/shared/errors'
import {
  createProductPages,
  type PageContent,
  type Product,
  PAGE_POLICY,
  PAGE_STYLE_SOURCE,
} from '@integration-host/shared/http/page'
import { problemOf, problemResponse } from '@integration-host/shared/http/problem'

/** The pages that the owners of companies see. They say which product asks for access. */
export interface Pages {
  /** Returns the name of the product, or the words `other` if the product has no name. */
  readonly productOr: (other: string) => string
  /**
   * Returns an HTML page with a heading, one paragraph, and `content` below them. Heading and paragraph are escaped.
   *
   * The page overrides the header `Referrer-Policy: no-referrer`, under which browsers send `Origin: null` with a form
   * (Fetch, section 3.2). {@link requireSameOrigin} needs the origin if a browser does not support Fetch Metadata. The
   * policy of the page sends no referrer to other origins.
   */
  readonly page: (title: string, text: string, content?: PageContent) => PageContent
  /**
   * Responds to an error with an HTML page if the client accepts HTML, and with a problem document otherwise. `nextStep`
   * returns what the page offers below the error.
   */
  readonly forBrowser: (
    c: Context,
    work: () => Promise<Response>,
    nextStep?: (scriptNonce: string) => PageContent | null,
  ) => Promise<Response>
  /**
   * Returns the `Content-Security-Policy` of a page with a {@link button}. It has no `form-action`, because browsers
   * would also apply this directive to the redirect to the provider after the form.
   */
  readonly formPolicy: (scriptNonce: string) => string
}

export function createPages(product: Product): Pages {
  const { page: productPage, withLogo } = createProductPages(product)
  const head = html`<meta name="referrer" content="same-origin" />`
  const page: Pages['page'] = (title, text, content) =>
    productPage(
      title,
      html`<h1>${title}</h1>
        <p>${text}</p>
        ${content ?? ''}`,
      head,
    )
  const formPolicy = (scriptNonce: string): string =>
    withLogo(
      `default-src 'none'; style-src ${PAGE_STYLE_SOURCE}; script-src 'nonce-${scriptNonce}'; base-uri 'none'; frame-ancestors 'none'`,
    )
  return {
    productOr: (other) => product.PRODUCT_NAME ?? other,
    page,
    formPolicy,
    async forBrowser(c, work, nextStep) {
      c.header('Cache-Control', 'no-store')
      c.header('Content-Security-Policy', withLogo(PAGE_POLICY))
      try {
        return await work()
      } catch (error) {
        if (!(error instanceof IntegrationError) || !c.req.header('accept')?.includes('text/html'))
          throw error
        const { status } = problemResponse(c, error)
        const { title, detail = '' } = problemOf(error)
        const nonce = createNonce()
        const content = nextStep?.(nonce) ?? null
        if (content !== null) c.header('Content-Security-Policy', formPolicy(nonce))
        return c.html(page(title, detail, content ?? undefined), status as ContentfulStatusCode)
      }
    },
  }
}

/** Where a form is sent, and its hidden fields. */
export interface FormTarget {
  readonly method: 'get' | 'post'
  /** The path of another page. Without it, the form is sent to the URL of its own page. */
  readonly action?: string
  readonly fields?: Readonly<Record<string, string>>
}

/** Returns a new nonce for {@link button} and `formPolicy`. */
export const createNonce = (): string => randomBytes(16).toString('base64')

/**
 * Returns a form with one button. A script disables the button after the first click, because a second click would
 * cancel the request and send it again. `scriptNonce` is the nonce in the page's policy (`formPolicy`).
 */
export const button = (
  label: string,
  scriptNonce: string,
  { method, action, fields = {} }: FormTarget = { method: 'post' },
): PageContent =>
  html`<form method="${method}" ${action === undefined ? '' : html`action="${action}"`}>
      ${Object.entries(fields).map(
        ([name, value]) => html`<input type="hidden" name="${name}" value="${value}" />`,
      )}
      <button>${label}</button>
    </form>
    <script nonce="${scriptNonce}">
      document.forms[0].addEventListener('submit', (event) => {
        event.submitter.disabled = true
      })
    </script>`
