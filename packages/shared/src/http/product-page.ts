/**
 * The pages that customers see. They say which product sends them: its name, its logo, and where to get help.
 */
import { html } from 'hono/html'
import { z } from 'zod'
import { isVisibleName } from '../contracts/text.ts'
import { exactUrl } from '../process/config.ts'
import { smallPage } from './small-page.ts'

/** The settings of a service that sends such pages. */
export const productSettings = () => ({
  /** The product whose pages these are. */
  PRODUCT_NAME: z
    .string()
    .max(100, 'must have at most 100 characters')
    .refine(isVisibleName, 'must have a letter or digit, and no invisible characters')
    .optional(),
  /** The address of an image that these pages show. */
  PRODUCT_LOGO: exactUrl()
    .refine((value) => !/[;,'?]/.test(value), "must have none of the characters ; , ' and ?")
    .optional(),
  /** Where customers get help: an e-mail address or the URL of a page. */
  PRODUCT_SUPPORT: z
    .union([z.email(), exactUrl()], { error: 'must be an e-mail address or an http(s) URL' })
    .optional(),
})
export type Product = z.output<z.ZodObject<ReturnType<typeof productSettings>>>

/** A piece of HTML. */
export type PageContent = ReturnType<typeof html>

export interface ProductPages {
  /** Returns an HTML page. `content` begins with the `h1` of the page; `head` is added to the head. */
  readonly page: (title: string, content: PageContent, head?: PageContent | '') => PageContent
  /** Adds the logo to a `Content-Security-Policy`. */
  readonly withLogo: (policy: string) => string
}

export function createProductPages(product: Product): ProductPages {
  const { PRODUCT_NAME: name, PRODUCT_LOGO: logo, PRODUCT_SUPPORT: support } = product
  const brand =
    name === undefined && logo === undefined
      ? ''
      : html`<p class="brand">
          ${logo === undefined ? '' : html`<img src="${logo}" alt="" />`} ${name ?? ''}
        </p>`
  const help =
    support === undefined
      ? ''
      : html`<p class="note">
          Questions?
          <a href="${support.includes('://') ? support : `mailto:${support}`}">${support}</a>
        </p>`
  return {
    page: (title, content, head = '') => smallPage(title, html`${brand} ${content} ${help}`, head),
    withLogo: (policy) => (logo === undefined ? policy : `${policy}; img-src ${logo}`),
  }
}
