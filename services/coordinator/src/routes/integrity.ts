import { lanesOf } from '@integration-host/shared/contracts/topology'
import { onlyKnownQuery, callerOf, needs } from '@integration-host/shared/http/request'
import { responses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { AppDeps } from '../core.ts'

const Integrity = z
  .object({
    ok: z.boolean(),
    headers: z.record(z.string(), z.int()),
    inexact: z
      .object({ unfinished: z.boolean(), endedBadly: z.boolean(), completed: z.boolean() })
      .meta({
        description:
          'which counts of `headers` are not exact: lower bounds of unfinished and badly ended runs, an estimate of completed ones',
      }),
    violations: z.record(z.string(), z.int()),
    unknownProcesses: z
      .record(z.string(), z.int())
      .meta({ description: 'unfinished runs of processes that no coordinator has loaded' }),
    queues: z.array(
      z.object({
        process: z.string(),
        step: z.string(),
        due: z.int().meta({ description: 'rows that are due and have no worker' }),
        messages: z
          .int()
          .nullable()
          .meta({ description: 'ready in the queue; null if the broker is unavailable' }),
      }),
    ),
    lanes: z.array(
      z
        .object({ process: z.string(), lane: z.string(), messages: z.int().nullable() })
        .meta({ description: 'a lane, such as `busy`, has messages of all steps' }),
    ),
    deadLetters: z.record(z.string(), z.int()).meta({
      description: 'by process: in the table, and in the queue unless the broker is unavailable',
    }),
  })
  .meta({ ref: 'Integrity' })

/** `GET /integrity` audits the tables when it is called. `ok` is true if every count of violations is 0. */
export function integrityRoutes({ auditor, queue, countDeadLetters, processes }: AppDeps) {
  return new Hono().get(
    '/',
    needs('transactions:read'),
    describeRoute({
      operationId: 'checkIntegrity',
      tags: ['operations'],
      summary: 'Check runs, items and queue depths against one another',
      responses: responses(Integrity),
    }),
    onlyKnownQuery(),
    async (c) => {
      callerOf(c).requireEveryProcess()
      const definitions = [...processes.values()]
      const audit = await auditor.audit()
      const due = (process: string, step: string, isFirst: boolean): number =>
        audit.dueBySteps
          .filter(
            (entry) =>
              entry.process === process && (entry.step === step || (isFirst && entry.step === '')),
          )
          .reduce((sum, entry) => sum + entry.due, 0)
      const queues = await Promise.all(
        definitions.flatMap(({ name, stepNames }) =>
          stepNames.map(async (step) => ({
            process: name,
            step,
            due: due(name, step, step === stepNames[0]),
            messages: await queue.waiting(name, step),
          })),
        ),
      )
      const lanes = await Promise.all(
        definitions.flatMap(({ name, stepNames }) =>
          lanesOf(stepNames).map(async (lane) => ({
            process: name,
            lane,
            messages: await queue.waiting(name, lane),
          })),
        ),
      )
      return c.json({
        ok: Object.values(audit.violations).every((count) => count === 0),
        headers: audit.runsByStatus,
        inexact: audit.inexact,
        violations: audit.violations,
        unknownProcesses: audit.unknownProcesses,
        queues,
        lanes,
        deadLetters: Object.fromEntries(await countDeadLetters()),
      })
    },
  )
}
