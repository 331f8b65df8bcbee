import { HeaderStatusText } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { texts } from '../../command.ts'
import { DEFAULT_LIMIT, pagedList } from '../../paging.ts'
import { oneId, pathOf, PROCESS_HELP, processOption } from './arguments.ts'

const Page = z.object({
  items: z.array(
    z.looseObject({
      ReplayID: z.int(),
      Status: HeaderStatusText,
      StepName: z.string(),
      ErrorClass: z.string().nullable(),
      InDoubt: z.boolean(),
      InputChanged: z.boolean(),
      DefinitionVersion: z.string().nullish(),
      CreatedAt: z.string(),
      UpdatedAt: z.string(),
      CompletedAt: z.string().nullable(),
      PurgedAt: z.string().nullable(),
    }),
  ),
  next_before: z.int().nullable(),
})

export const listRuns = pagedList({
  summary: 'list the runs of a transaction, the latest first',
  usage: 'ID [--limit N]',
  help: `Lists the runs of a transaction: the first run and its replays, the latest first. With --json each line
is one run.

${PROCESS_HELP}
  --limit N           the maximum number (default ${DEFAULT_LIMIT})

Examples:
  integration-host transactions runs 66`,
  options: { ...processOption, ...texts('limit') },
  argumentOf: oneId,
  pathOf: async (service, { values, argument: id }) =>
    `${await pathOf(service, values.process)}/${encodeURIComponent(id)}/runs`,
  schema: Page,
  mostPerPage: 100,
  columns: {
    REPLAY: (run) => run.ReplayID,
    'BEGAN WITH': (run) => run.DefinitionVersion,
    STATUS: (run) => run.Status,
    STEP: (run) => run.StepName,
    CLASS: (run) => run.ErrorClass,
    CREATED: (run) => run.CreatedAt,
    UPDATED: (run) => run.UpdatedAt,
    COMPLETED: (run) => run.CompletedAt,
    NOTE: (run) =>
      [
        run.InDoubt && 'in doubt',
        run.InputChanged && 'other initial data',
        run.PurgedAt !== null && 'data removed',
      ]
        .filter(Boolean)
        .join(', '),
  },
  more: () => '--limit',
})
