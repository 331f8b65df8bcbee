import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { type Command, parse, wholeNumber } from '../../command.ts'
import { exitCodes, UsageError } from '../../exit-code.ts'
import { openCoordinator } from '../../service-api.ts'
import { createTable, notify, print, widthOf } from '../../terminal.ts'
import { oneId, pathOf, PROCESS_HELP, processOption } from './arguments.ts'

const Page = z.object({
  items: z.array(
    z.looseObject({
      ReplayID: z.int(),
      Status: z.enum(headerStatuses),
      StepName: z.string(),
      ErrorClass: z.string().nullable(),
      InDoubt: z.boolean(),
      InputChanged: z.boolean(),
      CreatedAt: z.string(),
      UpdatedAt: z.string(),
      CompletedAt: z.string().nullable(),
      PurgedAt: z.string().nullable(),
    }),
  ),
  next_before: z.int().nullable(),
})
type Page = z.output<typeof Page>
const DEFAULT_LIMIT = 50
const MOST_PER_PAGE = 100

export const listRuns: Command = {
  summary: 'list the runs of a transaction, the latest first',
  usage: 'ID [--limit N]',
  help: `Lists the runs of a transaction: the first run and its replays, the latest first. With --json one on each line.

${PROCESS_HELP}
  --limit N           the maximum number (default ${DEFAULT_LIMIT})

Examples:
  integration-host transactions runs 66`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, { ...processOption, limit: { type: 'string' } })
    const id = oneId(positionals)
    let left = wholeNumber('--limit', values.limit ?? String(DEFAULT_LIMIT))
    if (left < 1) throw new UsageError('--limit must be at least 1')
    const service = openCoordinator(values.url, terminal)
    const path = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}/runs`
    const table = createTable(COLUMNS, widthOf(terminal))
    let before: number | null = null
    do {
      const query = new URLSearchParams({ limit: String(Math.min(left, MOST_PER_PAGE)) })
      if (before !== null) query.set('before', String(before))
      const page: Page = await service.get(`${path}?${query.toString()}`, Page)
      await print(
        terminal,
        ...(values.json
          ? page.items.map((run) => JSON.stringify(run))
          : table(page.items.map(rowOf))),
      )
      left -= page.items.length
      before = page.next_before
    } while (before !== null && left > 0)
    if (before !== null) notify(terminal, 'There are more: --limit.')
    return exitCodes.ok
  },
}

const COLUMNS = ['REPLAY', 'STATUS', 'STEP', 'CLASS', 'CREATED', 'UPDATED', 'COMPLETED', 'NOTE']

const rowOf = (run: Page['items'][number]): string[] => [
  String(run.ReplayID),
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
