import { keyName } from '@integration-host/shared/access/key-list'
import { ActionPage } from '@integration-host/shared/contracts/operations'
import { texts, wholeNumber } from '../command.ts'
import { UsageError } from '../exit-code.ts'
import { DEFAULT_LIMIT, pagedList } from '../paging.ts'
import { transactionId } from './transactions/arguments.ts'

export const listActions = pagedList({
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
  options: texts('process', 'id', 'before', 'limit'),
  parametersOf({ values: { process, id, before } }) {
    const position = before === undefined ? undefined : wholeNumber('--before', before)
    if (position === 0) throw new UsageError('--before must be at least 1')
    return {
      process,
      id: id === undefined ? id : transactionId('--id', id),
      before: position,
    }
  },
  pathOf: () => '/actions',
  schema: ActionPage,
  columns: {
    ID: 'ID',
    AT: 'At',
    WHO: ({ KeyID, Person }) => (Person === null ? keyName(KeyID) : `${KeyID} for ${Person}`),
    ACTION: 'Action',
    PROCESS: 'Process',
    TRANSACTION: 'TransactionID',
    REPLAY: 'ReplayID',
    OUTCOME: 'Outcome',
    REASON: 'Reason',
  },
  more: (position) => `--before ${position}`,
})
