import { credentialName } from '@integration-host/shared/contracts/realm'
import { RunResponse } from '@integration-host/shared/contracts/run'
import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse } from '@integration-host/shared/http/service-app'
import type { Hono } from 'hono'
import { z } from 'zod'
import { QueueBody, QueuedRun } from '../contracts/runs.ts'
import { guardedRoutes, type Person, type RouteDeps } from './guarded-route.ts'

/** The route that queues a transaction. */
export function queueRoutes(deps: RouteDeps): Hono {
  const { act, routes } = guardedRoutes(deps, 'queue')
  const { coordinator, tokenService } = deps
  const transactions = (process: string): string =>
    `/processes/${encodeURIComponent(process)}/transactions`

  /**
   * Returns whether token-service did not say whether a company exists. A 404 without its code may come from a proxy.
   *
   * @throws {IntegrationError} `credential_not_found` if the company does not exist.
   */
  async function isUnchecked(by: Person, realm: string): Promise<boolean> {
    try {
      await tokenService.send(`/credentials/${credentialName(realm)}`, by, z.unknown())
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

  act('/queue', {
    operationId: 'queueTransaction',
    summary: 'Queues a transaction',
    description:
      'The person and the reason are in the action log. A company that does not exist is rejected. While token-service does not respond, the company is accepted unchecked.',
    body: QueueBody,
    responses: {
      202: jsonResponse('queued', QueuedRun),
      200: jsonResponse('it exists already, with the same data, company and tags', QueuedRun),
    },
    async respond({ c, by, body: { Process, Data, ...transaction } }) {
      const { Realm } = transaction
      const CompanyUnchecked = Realm !== undefined && (await isUnchecked(by, Realm))
      let IsNew = false
      const { ReplayID, Status } = await coordinator.send(
        transactions(Process),
        {
          ...by,
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
  })
  return routes
}
