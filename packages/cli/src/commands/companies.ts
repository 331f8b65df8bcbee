/** The commands on companies: list the paused ones, pause and resume. */
import { keyName } from '@integration-host/shared/access/key-name'
import { CompanyPauseView, PausedCompanies } from '@integration-host/shared/contracts/company-pause'
import { Realm } from '@integration-host/shared/contracts/realm'
import { type Command, expectNone, parse } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { openCoordinator } from '../service-api.ts'
import { createTable, print, widthOf } from '../terminal.ts'
import { REASON_HELP, reasonOf, reasonOption } from './transactions/arguments.ts'

export const listPausedCompanies: Command = {
  summary: 'list the companies that are paused, by whom and why',
  usage: '',
  help: `Lists the companies whose runs start no step. With --json each line is one company. To list all companies:
  integration-host credentials list

Examples:
  integration-host companies paused`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {})
    expectNone(positionals)
    const path = '/realms/paused'
    const { items } = await openCoordinator(values.url, terminal).get(path, PausedCompanies)
    const table = createTable(['COMPANY', 'PAUSED AT', 'BY', 'REASON'], widthOf(terminal))
    const rows = items.map(({ Realm: realm, PausedAt, PausedBy, Reason }) => [
      realm,
      PausedAt ?? '',
      keyName(PausedBy ?? ''),
      Reason ?? '',
    ])
    await print(
      terminal,
      ...(values.json ? items.map((item) => JSON.stringify(item)) : table(rows)),
    )
    return exitCodes.ok
  },
}

/** Creates a command that pauses or resumes one company and prints the outcome. */
const change = (
  { summary, help }: Pick<Command, 'summary' | 'help'>,
  path: 'pause' | 'resume',
  done: string,
): Command => ({
  summary,
  usage: 'REALM [--reason TEXT]',
  help,
  async run(args, terminal) {
    const { values, positionals } = parse(args, reasonOption)
    const [realm, ...rest] = positionals
    if (realm === undefined || !Realm.safeParse(realm).success)
      throw new UsageError(`The id of a company is needed: companies ${path} REALM`)
    expectNone(rest)
    const body = { Reason: reasonOf(values.reason) }
    const company = await openCoordinator(values.url, terminal).post(
      `/realms/${encodeURIComponent(realm)}/${path}`,
      body,
      CompanyPauseView,
    )
    await print(terminal, values.json ? JSON.stringify(company) : `${realm} ${done}`)
    return exitCodes.ok
  },
})

export const pauseCompany = change(
  {
    summary: 'pause a company: its runs start no step',
    help: `Pauses a company on all replicas, within a second. Its runs wait before their next step; a step in flight may finish.
Transactions, schedules, changes, events and decisions are accepted, outgoing webhooks are delivered, and deadlines count.
Calls of other programs through the gateway go on. A pause ends with "companies resume", or when the company is erased.

${REASON_HELP}

Examples:
  integration-host companies pause 9341453908059889 --reason 'month end'
  integration-host transactions list --waiting-for paused:9341453908059889`,
  },
  'pause',
  'is paused.',
)

export const resumeCompany = change(
  {
    summary: 'continue the runs of a paused company',
    help: `Ends the pause of a company. Its runs continue where they have stopped.

${REASON_HELP}

Examples:
  integration-host companies resume 9341453908059889 --reason 'the books are closed'`,
  },
  'resume',
  'runs again.',
)
