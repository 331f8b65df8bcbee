/** The HTML page on which a person decides. It has no script, and shows nothing of the run but what `ask` has returned. */
import { factText, type DecisionAsk } from '@integration-host/shared/contracts/decision'
import {
  type PageContent,
  type ProductPages,
  PAGE_STYLE_SOURCE,
} from '@integration-host/shared/http/page'
import { html } from 'hono/html'
import type { Decision } from '../decision/decisions.ts'

/** The `Content-Security-Policy` of the page: that of the console, without scripts. */
export const DECISION_POLICY = [
  "default-src 'none'",
  `style-src ${PAGE_STYLE_SOURCE}`,
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

/** The longest note that the form accepts. The data of an event may allow fewer characters. */
export const MAX_NOTE_LENGTH = 2_000

/** What the person has sent, if the page is the response to its form. */
interface Sent {
  readonly note: string
  /** Why the decision was not accepted; `null` if another decision came first. */
  readonly problem: string | null
}

/** Returns the page. Every text is escaped. */
export function decisionPage(
  { page }: ProductPages,
  decision: Decision,
  sent: Sent | null = null,
): PageContent {
  switch (decision.kind) {
    case 'open':
      return page(decision.ask.title, question(decision, sent))
    case 'decided': {
      const { title, by, choice, at } = decision
      const late =
        sent === null || decision.isOwn ? '' : ' Your decision came later, and has no effect.'
      const what = choice === null ? 'has sent another event' : `has chosen “${factText(choice)}”`
      return titled(
        'Decided',
        html`${title === null ? '' : html`<p><strong>${title}</strong></p>`}
          <p>${by} ${what} on <time datetime="${at}">${timeText(at)}</time>.${late}</p>`,
      )
    }
    case 'early':
      return titled(
        'Not yet',
        html`<p>There is nothing to decide yet. Open this address again later.</p>`,
      )
    case 'void':
      return titled(
        'This address cannot be used',
        html`<p>This address cannot be used: ${decision.why}.</p>`,
      )
  }
  function titled(title: string, content: PageContent): PageContent {
    return page(
      title,
      html`<h1>${title}</h1>
        ${content}`,
    )
  }
}

function question(
  { person, ask, choices }: Extract<Decision, { kind: 'open' }>,
  sent: Sent | null,
): PageContent {
  return html`<h1>${ask.title}</h1>
    ${facts(ask)} ${sent?.problem ? html`<p class="problem" role="alert">${sent.problem}</p>` : ''}
    <form method="post">
      <label>
        Note (optional)
        <textarea name="note" rows="3" maxlength="${MAX_NOTE_LENGTH}">${sent?.note ?? ''}</textarea>
      </label>
      <p class="note">
        You decide as <strong>${person}</strong>, and only once. Who has this address decides in
        your name: do not pass it on.
      </p>
      <div class="choices">
        ${choices.Choices.map(
          (choice) =>
            html`<button name="choice" value="${String(choice)}">${factText(choice)}</button> `,
        )}
      </div>
    </form>`
}

const facts = ({ facts: named }: DecisionAsk): PageContent | '' =>
  Object.keys(named).length === 0
    ? ''
    : html`<dl>
        ${Object.entries(named).map(
          ([name, value]) =>
            html`<div>
              <dt>${name}</dt>
              <dd>${factText(value)}</dd>
            </div>`,
        )}
      </dl>`

/** Returns the time for people. The time zone of the person is not known, so it is named. */
const timeText = (at: string): string => `${at.slice(0, 10)} at ${at.slice(11, 16)} UTC`
