import { credentialName } from '@integration-host/shared/contracts/realm'
import { RunResponse } from '@integration-host/shared/contracts/run'
import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import { QueueBody, QueuedRun } from '../contracts/queue.ts'
import type { Sessions } from '../session/sessions.ts'
import { needsRole, sessionOf } from './browser-guard.ts'
import { ACTION_PROBLEMS } from './peer-problems.ts'

export interface QueueRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly coordinator: ServiceClient
  readonly tokenService: ServiceClient
}

/** The route that queues a transaction. */
export function queueRoutes(deps: QueueRouteDeps): Hono {
  const { sessions, isHttps, coordinator, tokenService } = deps
  const tags = ['queue']
  const operator = needsRole(sessions, 'operator', isHttps)
  const person = (c: Context): { readonly person: string } => ({ person: sessionOf(c).user })
  const transactions = (process: string): string =>
    `/processes/${encodeURIComponent(process)}/transactions`

  /**
   * Returns whether token-service did not say whether a company exists. A 404 without its code may come from a proxy.
   *
   * @throws {IntegrationError} `credential_not_found` if the company does not exist.
   */
  async function isUnchecked(c: Context, realm: string): Promise<boolean> {
    try {
      await tokenService.send(`/credentials/${credentialName(realm)}`, person(c), z.unknown())
      return false
    } catch (error) {
      if (!(error instanceof IntegrationError)) throw error
      if (error.code !== 'credential_not_found') return true
      throw new IntegrationError(
        'credential_not_found',
        `There is no company ${realm} in this installation, so nothing was queued`,
        { cause: error },
      )
    }
  }

  return new Hono().post(
    '/queue',
    operator,
    describeRoute({
      operationId: 'queueTransaction',
      tags,
      summary: 'Queues a transaction',
      description:
        'The person and the reason are in the action log. A company that does not exist is rejected. While token-service does not respond, the company is accepted unchecked.',
      responses: {
        202: jsonResponse('queued', QueuedRun),
        200: jsonResponse('it exists already, with the same data, company and tags', QueuedRun),
        ...problemResponses(ACTION_PROBLEMS),
      },
    }),
    validate('json', QueueBody),
    async (c) => {
      const { Process, Data, ...transaction } = c.req.valid('json')
      const { Realm } = transaction
      const CompanyUnchecked = Realm !== undefined && (await isUnchecked(c, Realm))
      let IsNew = false
      const { ReplayID, Status } = await coordinator.send(
        transactions(Process),
        {
          ...person(c),
          method: 'POST',
          text: {
            type: 'application/json',
            // The JSON of the data is sent unchanged, because parsing could lose digits of its
            // numbers.
            content: `${JSON.stringify(transaction).slice(0, -1)},"InitialData":${Data}}`,
          },
          onHeaders: (_, status) => {
            IsNew = status === 202
          },
        },
        RunResponse,
      )
      return c.json(
        { ReplayID, Status, IsNew, CompanyUnchecked } satisfies QueuedRun,
        IsNew ? 202 : 200,
      )
    },
  )
}
