import {
  CreateDecisionLink,
  type DecisionAsk,
  DecisionLink,
  factText,
} from '@integration-host/shared/contracts/decision'
import { errorCodes, IntegrationError } from '@integration-host/shared/errors'
import { textResponse } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { html } from 'hono/html'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { action } from '../routes/act.ts'
import { EventParam, RunQuery } from '../routes/contracts.ts'
import type { Decision } from './decisions.ts'
import {
  createProductPages,
  PAGE_STYLE_SOURCE,
  type PageContent,
  type ProductPages,
} from '@integration-host/shared/http/page'
import type { AppDeps } from '../core.ts'

/** The largest form in bytes. A character of the note has at most 12 bytes in it. */
export const MAX_DECISION_BYTES = 32_768

const tags = ['decisions']

/** `POST …/transactions/{id}/events/{name}/links`. `requireRealmOfRun` rejects a run of another company. */
export const decisionLinkRoutes = (
  { decisions }: Pick<AppDeps, 'decisions'>,
  requireRealmOfRun: (c: Context) => Promise<void>,
) =>
  new Hono().post(
    '/:id/events/:name/links',
    ...action<typeof EventParam, typeof RunQuery, typeof CreateDecisionLink>({
      operationId: 'createDecisionLink',
      tags,
      summary: 'Create the address of the page on which a person decides about an event with `ask`',
      description:
        'Who has the address decides as the person. It is valid until the decision, at most until `ExpiresAt`, and void ' +
        'when the run is over or replayed. It cannot be read again.',
      scope: 'transactions:signal',
      param: EventParam,
      query: RunQuery,
      body: CreateDecisionLink,
      success: { 201: DecisionLink },
      problems: [
        'invalid_request',
        'process_not_found',
        'transaction_not_found',
        'event_not_found',
        'transaction_not_active',
        'version_moved',
      ],
      async apply({ c, param, query, body, act }) {
        await requireRealmOfRun(c)
        const { For: person, ExpiresInSeconds: seconds } = body
        const to = [param.process, param.id, query.replay ?? null, param.name] as const
        return c.json(await decisions.create(...to, { person, seconds }, act), 201)
      },
    }),
  )

/** The pages of decisions for browsers: `/decisions/{token}`. They need no key. */
export function decisionRoutes({ decisions, product }: AppDeps): Hono {
  const pages = createProductPages(product)
  const policy = pages.withLogo(DECISION_POLICY)
  const parameters = [
    { name: 'token', in: 'path' as const, required: true, schema: { type: 'string' as const } },
  ]
  /** Responds with a page in any case, because only people request these paths. */
  const page = async (
    c: Context,
    work: () => Promise<{ readonly content: ReturnType<typeof html>; readonly status: number }>,
  ): Promise<Response> => {
    c.header('Content-Security-Policy', policy)
    c.header('Cross-Origin-Opener-Policy', 'same-origin')
    c.header('Cross-Origin-Resource-Policy', 'same-origin')
    const { content, status } = await work().catch((error: unknown) => {
      if (!(error instanceof IntegrationError) || errorCodes[error.code].status < 500) throw error
      return { content: unavailable(), status: errorCodes[error.code].status }
    })
    return c.html(content, status as ContentfulStatusCode)
  }
  const unavailable = () =>
    pages.page(
      'Not available now',
      html`<h1>Not available now</h1>
        <p>Nothing was decided. Try again in a minute.</p>`,
    )
  const isVoid = ({ kind }: Decision): boolean => kind === 'void'
  return new Hono()
    .get(
      '/:token',
      describeRoute({
        operationId: 'showDecision',
        tags,
        parameters,
        summary: 'The page on which a person decides, or which says what was decided',
        description: 'Changes nothing, however often it is requested.',
        responses: {
          200: textResponse('the page', 'text/html'),
          410: textResponse('a page: the address cannot be used', 'text/html'),
          503: textResponse('a page: the store is not available', 'text/html'),
        },
      }),
      (c) =>
        page(c, async () => {
          const decision = await decisions.look(c.req.param('token'))
          return { content: decisionPage(pages, decision), status: isVoid(decision) ? 410 : 200 }
        }),
    )
    .post(
      '/:token',
      describeRoute({
        operationId: 'decide',
        tags,
        parameters,
        summary: 'Decides as the person of the address: the form of the page',
        responses: {
          200: textResponse('a page: the decision of this person', 'text/html'),
          400: textResponse('the page: the decision was not accepted', 'text/html'),
          409: textResponse('a page: another decision came first, or it is too early', 'text/html'),
          410: textResponse('a page: the address cannot be used', 'text/html'),
          503: textResponse('a page: the store is not available', 'text/html'),
        },
      }),
      (c) =>
        page(c, async () => {
          const form = new URLSearchParams(await c.req.text())
          const choice = form.get('choice') ?? ''
          const note = (form.get('note') ?? '').slice(0, MAX_NOTE_LENGTH)
          const result = await decisions.decide(c.req.param('token'), { choice, note })
          const { decision } = result
          const problem = 'problem' in result ? result.problem : null
          const content = decisionPage(pages, decision, { note, problem })
          if (problem !== null) return { content, status: 400 }
          const isAccepted = 'isAccepted' in result && result.isAccepted
          return { content, status: isAccepted ? 200 : isVoid(decision) ? 410 : 409 }
        }),
    )
}

/** The `Content-Security-Policy` of the page: that of the console, without scripts. */
const DECISION_POLICY = [
  "default-src 'none'",
  `style-src ${PAGE_STYLE_SOURCE}`,
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

/** The longest note that the form accepts. The data of an event may allow fewer characters. */
const MAX_NOTE_LENGTH = 2_000

/** What the person has sent, if the page is the response to its form. */
interface Sent {
  readonly note: string
  /** Why the decision was not accepted; `null` if another decision came first. */
  readonly problem: string | null
}

/** Returns the page. Every text is escaped. */
function decisionPage(
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
