/** Creates the commands that consist of one request to the coordinator. */
import type { z } from 'zod'
import { type Command, defineCommand } from './command.ts'
import { REASON_HELP, reasonOf, reasonOption } from './commands/transactions/arguments.ts'
import { openCoordinator } from './service-api.ts'
import { type Columns, createTable, plain, print, widthOf } from './terminal.ts'

interface Listing<Item> extends Pick<Command, 'summary' | 'help'> {
  readonly path: string
  readonly response: z.ZodType<{ readonly items: readonly Item[] }>
  readonly columns: Columns<Item>
}

/** Creates a command that prints a list that has only one page. */
export const listCommand = <Item>({ path, response, columns, ...described }: Listing<Item>) =>
  defineCommand({
    ...described,
    usage: '',
    async run({ values, terminal }) {
      const { items } = await openCoordinator(values.url, terminal).get(path, response)
      const lines = values.json
        ? items.map((item) => JSON.stringify(item))
        : createTable(columns, widthOf(terminal))(items)
      await print(terminal, ...lines)
    },
  })

interface Change<Response> extends Pick<Command, 'summary' | 'usage'> {
  /** The description and the example, between which the help describes `--reason`. */
  readonly help: readonly [description: string, example: string]
  /** Returns the path of the request. @throws {UsageError} the arguments do not name one thing. */
  readonly pathOf: (words: readonly string[]) => string
  readonly response: z.ZodType<Response>
  /** Returns the line that the command prints after the change. */
  readonly done: (response: Response, words: readonly string[]) => string
}

/** Creates a command that changes one thing, for a reason. */
export const changeCommand = <Response>({
  summary,
  usage,
  help: [description, example],
  pathOf,
  response,
  done,
}: Change<Response>) =>
  defineCommand({
    summary,
    usage: `${usage} [--reason TEXT]`,
    help: `${description}\n\n${REASON_HELP}\n\nExamples:\n  integration-host ${example}`,
    options: reasonOption,
    argumentOf: (words) => ({ path: pathOf(words), words }),
    async run({ values, argument: { path, words }, terminal, output }) {
      const body = { Reason: reasonOf(values.reason) }
      const changed = await openCoordinator(values.url, terminal).post(path, body, response)
      await output(changed, plain(done(changed, words)))
    },
  })
