/** The command `changes`: how far the change feed of a company was read. */
import { ChangesView } from '@integration-host/shared/contracts/company'
import { Realm } from '@integration-host/shared/contracts/realm'
import { type Command, expectNone, parse } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { openCoordinator } from '../service-api.ts'
import { plain, print } from '../terminal.ts'

export const changes: Command = {
  summary: 'show how far the change feed of a company was read',
  usage: 'REALM',
  help: `Shows until when the changes in the books of a company were read from the provider. The coordinator reads them daily, so that
changes whose webhooks were missed start their runs too. To read them now:
  integration-host schedules run ChangeFeed sweep

Examples:
  integration-host changes 9341453908059889
  integration-host changes 9341453908059889 --json | jq .LagSeconds`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {})
    const [realm, ...rest] = positionals
    if (realm === undefined || !Realm.safeParse(realm).success)
      throw new UsageError('The id of a company is needed: changes REALM')
    expectNone(rest)
    const view = await openCoordinator(values.url, terminal).get(
      `/realms/${encodeURIComponent(realm)}/changes`,
      ChangesView,
    )
    await print(terminal, ...(values.json ? [JSON.stringify(view)] : linesOf(view)))
    return exitCodes.ok
  },
}

const linesOf = ({ ReadUntil, LagSeconds, SweptAt, Events, Incomplete }: ChangesView): string[] => [
  `read until  ${ReadUntil} (${Math.round(LagSeconds / 60)} minutes ago)`,
  `last sweep  ${SweptAt === null ? 'none yet' : `${SweptAt}, ${Events} events`}`,
  ...(Incomplete === null ? [] : [`not read    ${plain(Incomplete)}`]),
]
