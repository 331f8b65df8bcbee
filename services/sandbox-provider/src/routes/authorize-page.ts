import { createHash } from 'node:crypto'
import { html, raw } from 'hono/html'
import { INVENTED } from '../authorization/decision.ts'
import type { Company } from '../company/companies.ts'

const STYLE = `
body { font: 16px/1.5 system-ui, sans-serif; max-width: 32rem; margin: 3rem auto; padding: 0 1rem }
fieldset { border: 1px solid #bbb; border-radius: 8px; margin: 1rem 0; padding: .5rem 1rem }
label { display: block; padding: .35rem 0 }
input[type=text] { font: inherit; width: 100%; box-sizing: border-box; padding: .3rem .5rem }
button { font: inherit; padding: .5rem 1.25rem; margin-right: .5rem }
code { color: #555 }
.note { color: #555 }
.problem { color: #a00 }
`

// The style sheet is a plain string so that formatters do not change it. The Content-Security-Policy contains the
// digest of exactly this text.
const STYLE_ELEMENT = raw(['<style>', STYLE, '</style>'].join(''))

/**
 * Returns the Content-Security-Policy of the page, which allows the page's style sheet and no other resource. Browsers
 * also apply the directive `form-action` to the redirects that follow the submission of a form. The directive therefore
 * lists the origin of the application, and the loopback hosts to which the application may then redirect.
 */
export function pagePolicy(redirectUri: string | null): string {
  const style = createHash('sha256').update(STYLE).digest('base64')
  const origin = redirectUri === null ? '' : ` ${new URL(redirectUri).origin}`
  return [
    `default-src 'none'`,
    `style-src 'sha256-${style}'`,
    `form-action 'self'${origin} http://localhost:* http://127.0.0.1:*`,
    `base-uri 'none'`,
    `frame-ancestors 'none'`,
  ].join('; ')
}

const page = (title: string, body: ReturnType<typeof html>) =>
  html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width" />
        <title>${title}</title>
        ${STYLE_ELEMENT}
      </head>
      <body>
        ${body}
      </body>
    </html>`

export interface Question {
  readonly action: string
  /** The parameters of the authorization request, repeated as hidden fields. */
  readonly carried: readonly (readonly [string, string])[]
  readonly companies: readonly Company[]
  /** An unused realm id that the form proposes for a new company. */
  readonly freshRealm: string
  /** The reason why the submitted form was rejected; `null` when the page is shown for the first time. */
  readonly problem: string | null
}

/**
 * Returns the page on which the user chooses a company and grants or denies access. The page is plain HTML without
 * scripts.
 */
export const authorizePage = ({ action, carried, companies, freshRealm, problem }: Question) =>
  page(
    'Connect a company (sandbox)',
    html`<h1>Connect a company</h1>
      <p>An application asks for access to the books of one of your companies.</p>
      <p class="note">This is a sandbox: there are no books, and no sign-in.</p>
      ${problem === null ? '' : html`<p class="problem" role="alert">${problem}</p>`}
      <form method="post" action="${action}">
        ${carried.map(
          ([name, value]) => html`<input type="hidden" name="${name}" value="${value}" />`,
        )}
        <fieldset>
          <legend>Company</legend>
          ${companies.map(
            ({ realm, name }, index) =>
              html`<label>
                <input
                  type="radio"
                  name="company"
                  value="${realm}"
                  ${index === 0 ? raw('checked') : ''}
                />
                ${name} <code>${realm}</code>
              </label>`,
          )}
          <label><input type="radio" name="company" value="${INVENTED}" /> Another one:</label>
          <label>
            Name <input type="text" name="company_name" maxlength="100" autocomplete="off" />
          </label>
          <label>
            Realm id
            <input
              type="text"
              name="company_realm"
              maxlength="64"
              value="${freshRealm}"
              autocomplete="off"
            />
          </label>
        </fieldset>
        <button name="decision" value="connect">Connect</button>
        <button name="decision" value="cancel">Cancel</button>
      </form>`,
  )

/**
 * Returns the error page that replaces a redirect if the redirect URI is not trusted or a limit of the sandbox is
 * reached.
 */
export const rejectedPage = (reason: string) =>
  page(
    'Not possible (sandbox)',
    html`<h1>This cannot be connected</h1>
      <p>${reason}</p>`,
  )
