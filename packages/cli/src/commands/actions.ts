import { ActionPage, type ActionView } from '@integration-host/shared/contracts/action'
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { type Command, expectNone, parse, wholeNumber } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { openCoordinator } from '../service-api.ts'
import { createTable, notify, print, widthOf } from '../terminal.ts'

const DEFAULT_LIMIT = 50
const MOST_PER_PAGE = 500

export const listActions: Command = {
  summary: 'list who queued, replayed, resumed, cancelled or paused what, and why',
  usage: '[--process NAME] [--id ID] [--before N] [--limit N]',
  help: `Lists the action log of the coordinator, the newest action first. With --json one on each line.

  --process NAME      only actions on this process and its transactions
  --id ID             only actions on transactions with this id
  --before N          only actions before this one; the number for the next page is printed on standard error
  --limit N           the maximum number (default ${DEFAULT_LIMIT})

Examples:
  integration-host actions list --id 66
  integration-host actions list --limit 1000 --json | jq -r 'select(.Outcome != "done") | [.At, .KeyID, .Action] | @tsv'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      process: { type: 'string' },
      id: { type: 'string' },
      before: { type: 'string' },
      limit: { type: 'string' },
    })
    expectNone(positionals)
    const filter = new URLSearchParams()
    if (values.process !== undefined) filter.set('process', values.process)
    if (values.id !== undefined) filter.set('id', idOf(values.id))
    let before = values.before === undefined ? null : wholeNumber('--before', values.before)
    if (before === 0) throw new UsageError('--before must be at least 1')
    let left = wholeNumber('--limit', values.limit ?? String(DEFAULT_LIMIT))
    if (left < 1) throw new UsageError('--limit must be at least 1')
    const service = openCoordinator(values.url, terminal)
    const table = createTable(COLUMNS, widthOf(terminal))
    do {
      filter.set('limit', String(Math.min(left, MOST_PER_PAGE)))
      if (before !== null) filter.set('before', String(before))
      const page: ActionPage = await service.get(`/actions?${filter.toString()}`, ActionPage)
      await print(
        terminal,
        ...(values.json
          ? page.items.map((action) => JSON.stringify(action))
          : table(page.items.map(rowOf))),
      )
      left -= page.items.length
      before = page.next_before
    } while (before !== null && left > 0)
    if (before !== null) notify(terminal, `There are more: --before ${before}.`)
    return exitCodes.ok
  },
}

const COLUMNS = [
  'ID',
  'AT',
  'WHO',
  'ACTION',
  'PROCESS',
  'TRANSACTION',
  'REPLAY',
  'OUTCOME',
  'REASON',
]

const rowOf = (action: ActionView): string[] => [
  String(action.ID),
  action.At,
  action.Person === null ? action.KeyID : `${action.KeyID} for ${action.Person}`,
  action.Action,
  action.Process,
  action.TransactionID ?? '',
  String(action.ReplayID ?? ''),
  action.Outcome,
  action.Reason ?? '',
]

/** Returns the id of a transaction. @throws {UsageError} the text is not an id. */
function idOf(text: string): string {
  const id = TransactionID.safeParse(text)
  if (!id.success) throw new UsageError(`--id ${id.error.issues[0]?.message ?? ''}`)
  return id.data
}
