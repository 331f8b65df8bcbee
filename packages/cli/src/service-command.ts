/** Creates the commands that consist of one request to the coordinator. */
import type { z } from 'zod'
import { type Command, expectNone, parse } from './command.ts'
import { REASON_HELP, reasonOf, reasonOption } from './commands/transactions/arguments.ts'
import { exitCodes } from './exit-code.ts'
import { openCoordinator } from './service-api.ts'
import { createTable, plain, print, widthOf } from './terminal.ts'

interface Listing<Item> extends Pick<Command, 'summary' | 'help'> {
  readonly path: string
  readonly response: z.ZodType<{ readonly items: readonly Item[] }>
  readonly columns: readonly string[]
  readonly rowOf: (item: Item) => readonly string[]
}

/** Creates a command that prints a list that has only one page. */
export const listCommand = <Item>({
  summary,
  help,
  path,
  response,
  columns,
  rowOf,
}: Listing<Item>): Command => ({
  summary,
  usage: '',
  help,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {})
    expectNone(positionals)
    const { items } = await openCoordinator(values.url, terminal).get(path, response)
    const table = createTable(columns, widthOf(terminal))
    await print(
      terminal,
      ...(values.json ? items.map((item) => JSON.stringify(item)) : table(items.map(rowOf))),
    )
    return exitCodes.ok
  },
})

interface Change<Response> extends Pick<Command, 'summary' | 'usage'> {
  /** The description and the example, between which the help describes `--reason`. */
  readonly help: readonly [description: string, example: string]
  /** Returns the path of the request. @throws {UsageError} the arguments do not name one thing. */
  readonly pathOf: (positionals: readonly string[]) => string
  readonly response: z.ZodType<Response>
  /** Returns the line that the command prints after the change. */
  readonly done: (response: Response, positionals: readonly string[]) => string
}

/** Creates a command that changes one thing, for a reason. */
export const changeCommand = <Response>({
  summary,
  usage,
  help: [description, example],
  pathOf,
  response,
  done,
}: Change<Response>): Command => ({
  summary,
  usage: `${usage} [--reason TEXT]`,
  help: `${description}\n\n${REASON_HELP}\n\nExamples:\n  integration-host ${example}`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, reasonOption)
    const path = pathOf(positionals)
    const body = { Reason: reasonOf(values.reason) }
    const changed = await openCoordinator(values.url, terminal).post(path, body, response)
    const text = plain(done(changed, positionals))
    await print(terminal, values.json ? JSON.stringify(changed) : text)
    return exitCodes.ok
  },
})
