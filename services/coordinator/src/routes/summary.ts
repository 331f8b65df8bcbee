import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { responses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { summaryOf } from '../run/audit.ts'
import { ProcessParam } from './contracts.ts'
import type { AppDeps } from '../core.ts'

const Group = z.object({
  Status: z.enum(headerStatuses),
  StepName: z.string().nullable(),
  ErrorClass: z.string().nullable(),
  Count: z.int().nonnegative(),
  InDoubt: z.int().nonnegative().meta({ description: 'how many of them are in doubt' }),
  OldestCreatedAt: z.iso.datetime(),
})

const Summary = z
  .object({
    At: z.iso.datetime().meta({ description: 'the time of the audit that has counted' }),
    Process: z.string(),
    Unfinished: z.array(
      Group.extend({
        StepName: z.string(),
        WaitingFor: z.string().nullable(),
        DefinitionVersion: z.string().nullable(),
      }),
    ),
    EndedBadly: z
      .array(
        Group.extend({
          FirstEndedAt: z.iso.datetime().nullable(),
          ProviderError: z
            .string()
            .nullable()
            .meta({ description: "the provider's code and message; a text from outside" }),
        }),
      )
      .meta({
        description:
          'failed and cancelled; a null StepName: runs newer than those whose step was read, because there are many',
      }),
    IsLowerBound: z.boolean().meta({ description: 'there may be more runs than were counted' }),
  })
  .meta({ ref: 'ProcessSummary' })

/**
 * The Retry-After, in seconds, of a response that is sent before the first audit. A coordinator makes its first audit
 * soon after its start.
 */
const RETRY_SECONDS = 5

/** `GET /processes/{process}/summary`: the runs that need attention, as counted by the latest periodic audit. */
export function summaryRoutes({ lastAudit, processes }: AppDeps) {
  return new Hono().get(
    '/:process/summary',
    needs('transactions:read'),
    describeRoute({
      operationId: 'getProcessSummary',
      tags: ['processes'],
      summary: 'Unfinished and badly ended runs by status, step and class, as of the latest audit',
      responses: responses(Summary, 'process_not_found', 'summary_not_ready'),
    }),
    validate('param', ProcessParam),
    onlyKnownQuery(),
    (c) => {
      callerOf(c).requireEveryRealm() // the counts concern the runs of all realms
      const { process } = c.req.valid('param')
      const audit = lastAudit()
      if (audit === null)
        throw new IntegrationError('summary_not_ready', 'the first audit is not finished', {
          retryAfterSeconds: RETRY_SECONDS,
        })
      const hasRuns = [...audit.unfinished, ...audit.endedBadly].some(
        ({ Process }) => Process === process,
      )
      if (!processes.has(process) && !hasRuns)
        throw new IntegrationError(
          'process_not_found',
          `no process ${process} is loaded, and there are no runs of it`,
        )
      return c.json(summaryOf(audit, process))
    },
  )
}
