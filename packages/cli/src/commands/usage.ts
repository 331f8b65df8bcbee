/** The command `usage`: the calls to the accounting API in a month. */
import { Realm } from '@integration-host/shared/contracts/realm'
import { z } from 'zod'
import { defineCommand, flags, texts, validOption } from '../command.ts'
import { limitOf, pagesOf, printPages, queryOf } from '../paging.ts'
import { openGateway } from '../service-api.ts'
import { type Columns, createTable, notify, widthOf } from '../terminal.ts'

const Calls = z.record(z.string(), z.number())
const Item = z.looseObject({ Realm: z.string(), Calls, Metered: z.number() })
const Page = z.object({
  Month: z.string(),
  Budget: z.number().nullable(),
  Total: z.object({ Calls, Metered: z.number() }).nullable(),
  items: z.array(Item),
  next_cursor: z.string().nullable(),
})

const DEFAULT_LIMIT = 100
const KINDS = ['core', 'read', 'query', 'cdc', 'report', 'batch', 'attachment']
const columns: Columns<z.output<typeof Item>> = {
  REALM: ({ Realm: realm }) => realm,
  METERED: ({ Metered }) => Metered,
  ...Object.fromEntries(
    KINDS.map((kind) => [
      kind.toUpperCase(),
      ({ Calls: calls }: z.output<typeof Item>) => calls[kind] ?? 0,
    ]),
  ),
}

export const usage = defineCommand({
  summary: 'list the calls of a month to the accounting API, by company',
  usage: '[--month YYYY-MM] [--realm REALM] [--limit N | --all]',
  help: `Lists the successful calls to the accounting API by company and kind. All kinds but core (objects that are created or changed)
are metered by Intuit. The gateway counts them; the counts are up to five seconds old.

  --month YYYY-MM   the month in UTC (default: this month)
  --realm REALM     only this company
  --limit N         at most N companies (default ${DEFAULT_LIMIT})
  --all             all companies

Examples:
  integration-host usage
  integration-host usage --month 2026-10 --all --json | jq -r '[.Realm, .Metered] | @tsv'`,
  options: { ...texts('month', 'realm', 'limit'), ...flags('all') },
  async run({ values, terminal }) {
    const realm = validOption('--realm', Realm.optional(), values.realm)
    let first: z.output<typeof Page> | null = null
    const schema = Page.transform((page) => {
      first ??= page
      return page
    })
    const pages = pagesOf(openGateway(values.url, terminal), {
      path: '/usage',
      query: queryOf({ month: values.month, realm }),
      schema,
      limit: limitOf(values, DEFAULT_LIMIT),
      mostPerPage: 1_000,
    })
    await printPages(pages, values.json, createTable(columns, widthOf(terminal)), terminal)
    const { Month, Budget, Total, items } = first as unknown as z.output<typeof Page>
    if (realm !== undefined && items.every(({ Calls: calls }) => Object.keys(calls).length === 0))
      notify(
        terminal,
        `No call of company ${realm} was counted in ${Month}. To list the companies: integration-host credentials list`,
      )
    if (Total !== null)
      notify(
        terminal,
        `${Month}: ${Total.Metered} metered calls${Budget === null ? '' : ` of ${Budget} (${((Total.Metered / Budget) * 100).toFixed(1)} %)`}.`,
      )
  },
})
