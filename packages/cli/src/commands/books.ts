/** The command `books check`: whether the books of a company are ready to be closed for a period. */
import { BooksView } from '@integration-host/shared/contracts/company'
import { Realm } from '@integration-host/shared/contracts/realm'
import { defineCommand, texts } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { queryOf } from '../paging.ts'
import { openCoordinator } from '../service-api.ts'

export const checkBooks = defineCommand({
  summary: 'check whether the books of a company are ready to be closed',
  usage: '--realm REALM (--month YYYY-MM | --since TIME [--until TIME])',
  help: `Prints one sentence: which runs of the period are unfinished, failed or in doubt, and which objects that runs have written
are not verified yet, were changed, voided or deleted from outside, or are missing. The period is in UTC.
Exit code 0: ready to close, 1: not ready.

  --realm REALM   the company
  --month YYYY-MM the period is this month
  --since TIME    or it begins here, such as 2026-10-01T00:00:00-04:00
  --until TIME    and ends before this; default: now

Examples:
  integration-host books check --realm 9341453908059889 --month 2026-10
  integration-host books check --realm 9341453908059889 --month 2026-10 --json | jq .Entries`,
  options: texts('realm', 'month', 'since', 'until'),
  async run({ values, terminal, output }) {
    const { realm = '' } = values
    if (!Realm.safeParse(realm).success) throw new UsageError('--realm REALM is needed')
    const path = `/realms/${encodeURIComponent(realm)}/books?${queryOf(periodOf(values)).toString()}`
    const view = await openCoordinator(values.url, terminal).get(path, BooksView)
    await output(view, `${realm}: ${view.Sentence}`)
    return view.Ready ? exitCodes.ok : exitCodes.failed
  },
})

/** @throws {UsageError} the options do not name one period. */
function periodOf({
  month,
  since,
  until,
}: Partial<Record<'month' | 'since' | 'until', string | undefined>>) {
  if (month === undefined) {
    if (since === undefined) throw new UsageError('--month YYYY-MM or --since TIME is needed')
    return { since, until }
  }
  if (since !== undefined || until !== undefined)
    throw new UsageError('Either --month or --since and --until')
  const [, year, number] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(month) ?? []
  if (year === undefined || year === '0000' || number === undefined)
    throw new UsageError('--month must be YYYY-MM, such as 2026-10')
  const begin = new Date(`${month}-01T00:00:00Z`)
  const end = new Date(begin)
  end.setUTCMonth(begin.getUTCMonth() + 1)
  return { since: begin.toISOString(), until: end.toISOString() }
}
