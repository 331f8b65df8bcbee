import { keyName } from '@integration-host/shared/access/key-list'
import { ActionPage, type ActionView } from '@integration-host/shared/contracts/operations'
import { type Command, expectNone, parse, wholeNumber } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { limitOf, pagesOf, printPages } from '../paging.ts'
import { openCoordinator } from '../service-api.ts'
import { notify } from '../terminal.ts'
import { transactionId } from './transactions/arguments.ts'

const DEFAULT_LIMIT = 50
const MOST_PER_PAGE = 500

export const listActions: Command = {
  summary: 'list who queued, replayed, resumed, cancelled or paused what, and why',
  usage: '[--process NAME] [--id ID] [--before N] [--limit N]',
  help: `Lists the action log of the coordinator, the newest action first. With --json each line is one action.

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
    const query = new URLSearchParams()
    if (values.process !== undefined) query.set('process', values.process)
    if (values.id !== undefined) query.set('id', transactionId('--id', values.id))
    if (values.before !== undefined) {
      const before = wholeNumber('--before', values.before)
      if (before < 1) throw new UsageError('--before must be at least 1')
      query.set('before', String(before))
    }
    const limit = limitOf(values, DEFAULT_LIMIT)
    const service = openCoordinator(values.url, terminal)
    const list = { path: '/actions', query, schema: ActionPage, limit, mostPerPage: MOST_PER_PAGE }
    const format = { isJson: values.json, columns: COLUMNS, rowOf }
    const next = await printPages(pagesOf(service, list), format, terminal)
    if (next !== null) notify(terminal, `There are more: --before ${next}.`)
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
  action.Person === null ? keyName(action.KeyID) : `${action.KeyID} for ${action.Person}`,
  action.Action,
  action.Process,
  action.TransactionID ?? '',
  String(action.ReplayID ?? ''),
  action.Outcome,
  action.Reason ?? '',
]
