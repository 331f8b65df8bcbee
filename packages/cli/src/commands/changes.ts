/** The command `changes`: how far the change feed of a company was read. */
import { ChangesView } from '@integration-host/shared/contracts/company'
import { defineCommand } from '../command.ts'
import { openCoordinator } from '../service-api.ts'
import { plain } from '../terminal.ts'
import { realmArgument } from './companies.ts'

export const changes = defineCommand({
  summary: 'show how far the change feed of a company was read',
  usage: 'REALM',
  help: `Shows until when the changes in the books of a company were read from the provider. The coordinator reads them daily, so that
changes whose webhooks were missed start their runs too. To read them now:
  integration-host schedules run ChangeFeed sweep

Examples:
  integration-host changes 9341453908059889
  integration-host changes 9341453908059889 --json | jq .LagSeconds`,
  argumentOf: realmArgument('changes'),
  async run({ values, argument: realm, terminal, output }) {
    const path = `/realms/${encodeURIComponent(realm)}/changes`
    const view = await openCoordinator(values.url, terminal).get(path, ChangesView)
    await output(view, ...linesOf(view))
  },
})

const linesOf = ({ ReadUntil, LagSeconds, SweptAt, Events, Incomplete }: ChangesView): string[] => [
  `read until  ${ReadUntil} (${Math.round(LagSeconds / 60)} minutes ago)`,
  `last sweep  ${SweptAt === null ? 'none yet' : `${SweptAt}, ${Events} events`}`,
  ...(Incomplete === null ? [] : [`not read    ${plain(Incomplete)}`]),
]
