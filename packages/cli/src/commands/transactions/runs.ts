import { HeaderStatusText } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { type Command, parse } from '../../command.ts'
import { exitCodes } from '../../exit-code.ts'
import { limitOf, pagesOf, printPages } from '../../paging.ts'
import { openCoordinator } from '../../service-api.ts'
import { notify } from '../../terminal.ts'
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
const DEFAULT_LIMIT = 50
const MOST_PER_PAGE = 100

export const listRuns: Command = {
  summary: 'list the runs of a transaction, the latest first',
  usage: 'ID [--limit N]',
  help: `Lists the runs of a transaction: the first run and its replays, the latest first. With --json each line
is one run.

${PROCESS_HELP}
  --limit N           the maximum number (default ${DEFAULT_LIMIT})

Examples:
  integration-host transactions runs 66`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, { ...processOption, limit: { type: 'string' } })
    const id = oneId(positionals)
    const limit = limitOf(values, DEFAULT_LIMIT)
    const service = openCoordinator(values.url, terminal)
    const path = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}/runs`
    const list = { path, schema: Page, limit, mostPerPage: MOST_PER_PAGE }
    const format = { isJson: values.json, columns: COLUMNS, rowOf }
    const next = await printPages(pagesOf(service, list), format, terminal)
    if (next !== null) notify(terminal, 'There are more: --limit.')
    return exitCodes.ok
  },
}

const COLUMNS = [
  'REPLAY',
  'BEGAN WITH',
  'STATUS',
  'STEP',
  'CLASS',
  'CREATED',
  'UPDATED',
  'COMPLETED',
  'NOTE',
]

const rowOf = (run: z.output<typeof Page>['items'][number]): string[] => [
  String(run.ReplayID),
  run.DefinitionVersion ?? '',
  run.Status,
  run.StepName,
  run.ErrorClass ?? '',
  run.CreatedAt,
  run.UpdatedAt,
  run.CompletedAt ?? '',
  [
    run.InDoubt && 'in doubt',
    run.InputChanged && 'other initial data',
    run.PurgedAt !== null && 'data removed',
  ]
    .filter(Boolean)
    .join(', '),
]
