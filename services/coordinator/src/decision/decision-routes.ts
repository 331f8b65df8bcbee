import { CreateDecisionLink, DecisionLink } from '@integration-host/shared/contracts/decision'
import { errorCodes, IntegrationError } from '@integration-host/shared/errors'
import { createProductPages, type Product } from '@integration-host/shared/http/page'
import { textResponse } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { html } from 'hono/html'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { action } from '../routes/act.ts'
import { EventParam, RunQuery } from '../routes/contracts.ts'
import { DECISION_POLICY, decisionPage, MAX_NOTE_LENGTH } from '../routes/decision-page.ts'
import type { Decision, Decisions } from './decisions.ts'

export interface DecisionRouteDeps {
  readonly decisions: Decisions
  readonly product: Product
}

/** The largest form in bytes. A character of the note has at most 12 bytes in it. */
export const MAX_DECISION_BYTES = 32_768

const tags = ['decisions']

/** `POST …/transactions/{id}/events/{name}/links`. `requireRealmOfRun` rejects a run of another company. */
export const decisionLinkRoutes = (
  { decisions }: Pick<DecisionRouteDeps, 'decisions'>,
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
export function decisionRoutes({ decisions, product }: DecisionRouteDeps): Hono {
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
