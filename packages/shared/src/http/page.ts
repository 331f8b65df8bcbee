/**
 * The small HTML pages of the services. A page has no script. It shows a card with a heading, some sentences and at
 * most one form. The pages have the colour scheme of the system, light or dark, and load nothing but the
 * logo of a product.
 */
import { createHash } from 'node:crypto'
import { html, raw } from 'hono/html'
import { z } from 'zod'
import { isVisibleName } from '../contracts/text.ts'
import { exactUrl } from '../process/config.ts'

/**
 * The pages have the same colours as the console (services/console/app/styles/main.css); a test compares the colours.
 */
const STYLE = `
:root {
  color-scheme: light dark;
  --ground: light-dark(#f4f6f8, #14171a);
  --surface: light-dark(#ffffff, #1e2328);
  --line: light-dark(#dde2e7, #30373e);
  --text: light-dark(#1a1d21, #e6e9ec);
  --muted: light-dark(#59626d, #9aa4af);
  --accent: light-dark(#0b5cad, #7ab8f5);
  --accent-ground: light-dark(#e8f1fb, #22313f);
  --on-accent: light-dark(#ffffff, #14171a);
  --bad: light-dark(#b3261e, #f2938c);
  --border: light-dark(#8b95a0, #6b7681);
  font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif;
  background: var(--ground);
  color: var(--text);
  -webkit-text-size-adjust: 100%;
}
* { box-sizing: border-box }
body { margin: 0; padding: 10vh 16px 48px }
main {
  max-width: 480px;
  margin: 0 auto;
  padding: 32px;
  background: var(--surface);
  border: 1px solid var(--line);
  border-radius: 12px;
  overflow-wrap: anywhere;
}
main::before {
  content: '';
  display: block;
  width: 32px;
  height: 32px;
  margin-bottom: 20px;
  border-radius: 8px;
  background:
    linear-gradient(var(--on-accent), var(--on-accent)) 7px 8px / 18px 3px no-repeat,
    linear-gradient(var(--on-accent), var(--on-accent)) 7px 15px / 11px 3px no-repeat,
    linear-gradient(var(--on-accent), var(--on-accent)) 7px 22px / 15px 3px no-repeat,
    var(--accent);
}
main:has(.brand)::before { content: none }
.brand { display: flex; align-items: center; gap: 12px; margin: 0 0 20px; font-weight: 600 }
.brand img { max-width: 160px; max-height: 40px }
h1 { margin: 0 0 8px; font-size: 24px; line-height: 32px; font-weight: 650; letter-spacing: -.01em }
p { margin: 0 0 16px }
main > :last-child { margin-bottom: 0 }
.note, code { color: var(--muted) }
code { font: 13px/1.5 ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace }
.problem { padding: 8px 12px; border-left: 4px solid var(--bad); background: var(--ground) }
a { color: var(--accent); text-underline-offset: 2px }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px }
form { margin: 24px 0 0 }
form ~ .note { margin-top: 24px }
fieldset { margin: 0 0 24px; padding: 0; border: 0 }
fieldset:not(:has(.other:checked)) .of-other { display: none }
legend { margin-bottom: 4px; padding: 0; font-weight: 600 }
label { display: block; padding: 6px 0 }
label:has([type=radio]) {
  display: grid;
  grid-template-columns: auto 1fr auto;
  align-items: center;
  gap: 10px;
  min-height: 44px;
  border-bottom: 1px solid var(--line);
}
input, textarea, button { font: inherit; color: inherit }
input[type=radio] { margin: 0; width: 18px; height: 18px; accent-color: var(--accent) }
input[type=text], textarea {
  display: block;
  width: 100%;
  min-height: 40px;
  padding: 6px 12px;
  background: var(--surface);
  border: 1px solid var(--border);
  border-radius: 6px;
}
button {
  min-height: 44px;
  padding: 8px 20px;
  background: var(--accent);
  border: 1px solid var(--accent);
  border-radius: 6px;
  color: var(--on-accent);
  font-weight: 600;
  cursor: pointer;
}
button + button { margin-left: 8px; background: none; border-color: var(--border); color: inherit; font-weight: 400 }
button:hover { filter: brightness(1.08) }
button + button:hover { background: var(--accent-ground); filter: none }
.choices { display: flex; flex-wrap: wrap; gap: 8px }
.choices button { flex: 1 1 auto; margin: 0 }
dl { margin: 16px 0 0 }
dl div { padding: 8px 0; border-bottom: 1px solid var(--line) }
dt { color: var(--muted); font-size: 14px }
dd { margin: 0 }
button:disabled { opacity: .6; cursor: default }
@media (max-width: 480px) {
  body { padding-top: 16px }
  main { padding: 24px 20px }
}
`

// The style sheet is a plain string so that formatters do not change it. The Content-Security-Policy contains the
// digest of exactly this text.
const STYLE_ELEMENT = raw(`<style>${STYLE}</style>`)

/** The source expression that allows the style sheet in a `Content-Security-Policy`: the digest of the style sheet. */
export const PAGE_STYLE_SOURCE = `'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`

/** The `Content-Security-Policy` of a page without forms and scripts. */
export const PAGE_POLICY = [
  "default-src 'none'",
  `style-src ${PAGE_STYLE_SOURCE}`,
  "form-action 'none'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ')

type Html = ReturnType<typeof html>

/** Returns an HTML page. `content` begins with the `h1` of the page; `head` is added to the head. */
export const smallPage = (title: string, content: Html, head: Html | '' = '') =>
  html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        ${head}
        <title>${title}</title>
        ${STYLE_ELEMENT}
      </head>
      <body>
        <main>${content}</main>
      </body>
    </html>`

/** The settings of a service that sends pages to customers, which say which product sends them. */
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
