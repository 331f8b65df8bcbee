/** The commands on the book of entries: what runs have written to the books of companies. */
import { EntryPage, entryStates, type EntryView } from '@integration-host/shared/contracts/company'
import { defineCommand, expectNone, texts } from '../command.ts'
import { CommandFailed, exitCodes, UsageError } from '../exit-code.ts'
import {
  cursorOptions,
  DEFAULT_LIMIT,
  moreByCursor,
  pagedList,
  pagesOf,
  queryOf,
} from '../paging.ts'
import { openCoordinator } from '../service-api.ts'
import { plain, print } from '../terminal.ts'
import { timeOf } from '../times.ts'
import { transactionId } from './transactions/arguments.ts'

const MOST_PER_PAGE = 500

export const listEntries = pagedList({
  summary: 'list what runs have written to the books, the newest first',
  usage:
    '[--realm REALM] [--entity NAME] [--id ID] [--process NAME] [--transaction ID] [--state STATE] [--since TIME] [--limit N | --all] [--cursor CURSOR]',
  help: `Lists which object in the books of a company was created, changed, voided or deleted by which run, the newest entry
first. With --json each line is one entry.

  --realm REALM       only entries of this company
  --entity NAME       only objects of this kind, such as Invoice
  --id ID             only the object with this id
  --process NAME      only entries of runs of this process
  --transaction ID    only entries of runs of this transaction
  --state STATE       ${entryStates.slice(0, 5).join(', ')},
                      ${entryStates.slice(5).join(', ')}
  --since TIME        recorded at this time or later; a duration such as 2h, or a time such as 2026-01-31T08:00:00Z
  --limit N           the maximum number (default ${DEFAULT_LIMIT}); the cursor of the next page is printed on standard error
  --all               all entries
  --cursor CURSOR     continue from this cursor

Examples:
  integration-host entries list --realm 9341453908059889 --since 1d
  integration-host entries list --transaction 66 --all --json | jq -r '[.Entity, .EntityID, .State] | @tsv'`,
  options: {
    ...texts('realm', 'entity', 'id', 'process', 'transaction', 'state', 'since'),
    ...cursorOptions,
  },
  parametersOf({ values: { limit: _limit, all: _all, url: _url, json: _json, ...filter } }) {
    const { state, since, transaction } = filter
    if (state !== undefined && !(entryStates as readonly string[]).includes(state))
      throw new UsageError(`--state must be one of ${entryStates.join(', ')}`)
    if (transaction !== undefined) transactionId('--transaction', transaction)
    return { ...filter, since: since === undefined ? since : timeOf('--since', since, Date.now()) }
  },
  pathOf: () => '/entries',
  schema: EntryPage,
  columns: {
    AT: 'RecordedAt',
    REALM: 'Realm',
    ENTITY: 'Entity',
    ID: 'EntityID',
    OPERATION: 'Operation',
    STATE: 'State',
    RUN: (entry) => runOf(entry),
    STEP: 'StepName',
  },
  more: moreByCursor,
})

const runOf = ({ Process, TransactionID, ReplayID }: EntryView): string =>
  `${Process}/${TransactionID}${ReplayID === 0 ? '' : `, replay ${ReplayID}`}`

export const showEntries = defineCommand({
  summary: 'show who has written an object in the books, and what is known of it',
  usage: 'ENTITY ID [--realm REALM]',
  help: `Shows the entries of one object, the newest first: which run has created or changed it, which fields it has written, and
what is known of the object since. With --json each line is one entry.

  --realm REALM       the company; needed if several companies have an object with this id

Examples:
  integration-host entries show Invoice 129
  integration-host entries show Invoice 129 --realm 9341453908059889 --json`,
  options: texts('realm'),
  argumentOf([entity, id, ...others]) {
    if (entity === undefined || id === undefined)
      throw new UsageError('The kind and the id of an object are needed, such as Invoice 129')
    expectNone(others)
    return { entity, id }
  },
  async run({ values, argument, terminal }) {
    const query = queryOf({ ...argument, realm: values.realm })
    const service = openCoordinator(values.url, terminal)
    const list = { path: '/entries', query, schema: EntryPage, mostPerPage: MOST_PER_PAGE }
    const found: EntryView[] = []
    for await (const page of pagesOf(service, { ...list, limit: MOST_PER_PAGE }))
      found.push(...page)
    if (found.length === 0) {
      const object = plain(`${argument.entity} ${argument.id}`)
      throw new CommandFailed(exitCodes.notFound, `No run has written ${object}.`)
    }
    const realms = [...new Set(found.map(({ Realm }) => Realm))]
    if (realms.length > 1)
      throw new UsageError(
        `Several companies have this object: --realm ${realms.join(', --realm ')}`,
      )
    const lines = values.json ? found.map((entry) => JSON.stringify(entry)) : linesOf(found)
    await print(terminal, ...lines)
  },
})

const linesOf = (entries: readonly EntryView[]): string[] =>
  entries.flatMap((entry, n) => [
    ...(n === 0 ? [] : ['']),
    `Object      ${plain(`${entry.Entity} ${entry.EntityID}`)} of company ${plain(entry.Realm)}`,
    `Operation   ${plain(entry.Operation)}, version ${plain(entry.SyncToken ?? 'unknown')}`,
    `State       ${plain(entry.State)}${entry.CheckedAt === null ? '' : `, checked ${entry.CheckedAt}`}`,
    ...(entry.Changed === null ? [] : [`Changed     ${plain(entry.Changed.join(', '))}`]),
    `Run         ${plain(runOf(entry))}, step ${plain(entry.StepName)}`,
    `Recorded    ${entry.RecordedAt}`,
    `Fields      ${entry.Fields === null ? 'erased' : plain(Object.keys(entry.Fields).join(', '))}`,
    `Entry       ${plain(entry.EntryID)}`,
  ])
