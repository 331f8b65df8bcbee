import { PAGE_STYLE_SOURCE, smallPage } from '@integration-host/shared/http/page'
import { html, raw } from 'hono/html'
import { INVENTED } from '../authorization/decision.ts'
import type { Company } from '../company/companies.ts'

/**
 * Returns the Content-Security-Policy of the page. It allows the style sheet of the page and no other resource.
 * Browsers also apply `form-action` to the redirects after the submission of a form. This directive therefore lists the
 * origin of the application, and the loopback hosts to which the application may redirect.
 */
export function pagePolicy(redirectUri: string | null): string {
  const origin = redirectUri === null ? '' : ` ${new URL(redirectUri).origin}`
  return [
    `default-src 'none'`,
    `style-src ${PAGE_STYLE_SOURCE}`,
    `form-action 'self'${origin} http://localhost:* http://127.0.0.1:*`,
    `base-uri 'none'`,
    `frame-ancestors 'none'`,
  ].join('; ')
}

export interface Question {
  readonly action: string
  /** The parameters of the authorization request, which the form sends again as hidden fields. */
  readonly carried: readonly (readonly [string, string])[]
  readonly companies: readonly Company[]
  /** An unused realm id that the form proposes for a new company. */
  readonly freshRealm: string
  /** The realm of the company that is selected when the page opens. */
  readonly chosen: string | undefined
  /** The reason why the submitted form was rejected; `null` when the page is shown for the first time. */
  readonly problem: string | null
}

/**
 * Returns the page on which the user chooses a company and grants or denies access. The page is plain HTML without
 * scripts.
 */
export const authorizePage = ({
  action,
  carried,
  companies,
  chosen,
  freshRealm,
  problem,
}: Question) =>
  smallPage(
    'Connect a company (sandbox)',
    html`<h1>Connect a company</h1>
      <p>An application asks for access to the books of one of your companies.</p>
      <p class="note">This is a sandbox: the books are invented, and there is no sign-in.</p>
      ${problem === null ? '' : html`<p class="problem" role="alert">${problem}</p>`}
      <form method="post" action="${action}">
        ${carried.map(
          ([name, value]) => html`<input type="hidden" name="${name}" value="${value}" />`,
        )}
        <fieldset>
          <legend>Company</legend>
          ${companies.map(
            ({ realm, name }) =>
              html`<label>
                <input
                  type="radio"
                  name="company"
                  value="${realm}"
                  ${realm === chosen ? raw('checked') : ''}
                />
                <span>${name}</span> <code>${realm}</code>
              </label>`,
          )}
          <label
            ><input type="radio" name="company" value="${INVENTED}" class="other" />
            <span>Another one:</span></label
          >
          <label class="of-other">
            Name <input type="text" name="company_name" maxlength="100" autocomplete="off" />
          </label>
          <label class="of-other">
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
  smallPage(
    'Not possible (sandbox)',
    html`<h1>This cannot be connected</h1>
      <p>${reason}</p>`,
  )
