/** The commands on companies: list the paused ones, pause and resume. */
import { keyName } from '@integration-host/shared/access/key-list'
import { CompanyPauseView, PausedCompanies } from '@integration-host/shared/contracts/company'
import { Realm } from '@integration-host/shared/contracts/realm'
import { onlyWord } from '../command.ts'
import { UsageError } from '../exit-code.ts'
import { changeCommand, listCommand } from '../service-command.ts'

export const listPausedCompanies = listCommand({
  summary: 'list the companies that are paused, by whom and why',
  help: `Lists the companies whose runs start no step. With --json each line is one company. To list all companies:
  integration-host credentials list

Examples:
  integration-host companies paused`,
  path: '/realms/paused',
  response: PausedCompanies,
  columns: {
    COMPANY: 'Realm',
    'PAUSED AT': 'PausedAt',
    BY: ({ PausedBy }) => keyName(PausedBy ?? ''),
    REASON: 'Reason',
  },
})

/** Returns the function that reads the only argument of a command, the id of a company. */
export const realmArgument =
  (command: string) =>
  (words: readonly string[]): string => {
    const missing = `The id of a company is needed: ${command} REALM`
    const [realm] = words
    if (!Realm.safeParse(realm).success) throw new UsageError(missing)
    return onlyWord(words, missing)
  }

const change = (action: 'pause' | 'resume', done: string) => ({
  usage: 'REALM',
  pathOf(words: readonly string[]): string {
    const realm = realmArgument(`companies ${action}`)(words)
    return `/realms/${encodeURIComponent(realm)}/${action}`
  },
  response: CompanyPauseView,
  done: (_: CompanyPauseView, [realm]: readonly string[]) => `${realm} ${done}`,
})

export const pauseCompany = changeCommand({
  ...change('pause', 'is paused.'),
  summary: 'pause a company: its runs start no step',
  help: [
    `Pauses a company on all replicas, within a second. Its runs wait before their next step; a step in flight may finish.
Transactions, schedules, changes, events and decisions are accepted, outgoing webhooks are delivered, and deadlines count.
Calls of other programs through the gateway go on. A pause ends with "companies resume", or when the company is erased.`,
    `companies pause 9341453908059889 --reason 'month end'
  integration-host transactions list --waiting-for paused:9341453908059889`,
  ],
})

export const resumeCompany = changeCommand({
  ...change('resume', 'runs again.'),
  summary: 'continue the runs of a paused company',
  help: [
    'Ends the pause of a company. Its runs continue where they have stopped.',
    `companies resume 9341453908059889 --reason 'the books are closed'`,
  ],
})
