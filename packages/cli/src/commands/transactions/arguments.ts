/** The schemas, options and checks of arguments that the commands on transactions share. */
import { HeaderView, ReplayID, TransactionID } from '@integration-host/shared/contracts/transaction'
import { Reason } from '@integration-host/shared/contracts/text'
import { OWN_TEXT, parseJson } from '@integration-host/shared/json'
import { z } from 'zod'
import { onlyWord, texts, validOption, wholeNumber } from '../../command.ts'
import { UsageError } from '../../exit-code.ts'
import type { ServiceApi } from '../../service-api.ts'

/** Members of the coordinator's responses that are for operators and not part of the shared contract. */
export const forOperators = {
  ErrorClass: z.string().nullable().optional(),
  WaitingFor: z.string().nullable().optional(),
  InDoubt: z.boolean().optional(),
  DefinitionVersion: z.string().nullish(),
  NotBefore: z.string().nullish(),
}
// `--json` prints all members of a response, so the schema keeps unknown members.
export const Header = HeaderView.extend(forOperators).loose()
export type Header = z.output<typeof Header>
const Processes = z.object({
  items: z.array(z.object({ Process: z.string(), BuiltIn: z.boolean().optional() })),
})

export const processOption = texts('process')
export const PROCESS_HELP =
  '  --process NAME      the process; may be omitted if the coordinator has only one'

/** Returns the path `/processes/<name>/transactions`. @throws like {@link processPathOf} */
export const pathOf = async (service: ServiceApi, name: string | undefined): Promise<string> =>
  `${await processPathOf(service, name)}/transactions`

/**
 * Returns the path `/processes/<name>`. If `name` is missing, the coordinator's only process is used.
 *
 * @throws {CommandFailed} the coordinator has several processes or none, or the request to the coordinator failed.
 */
export async function processPathOf(
  service: ServiceApi,
  name: string | undefined,
): Promise<string> {
  if (name !== undefined) return `/processes/${encodeURIComponent(name)}`
  const { items } = await service.get('/processes', Processes)
  // The built-in process for webhooks is used only if the user names it explicitly.
  const own = items.filter(({ BuiltIn }) => BuiltIn !== true)
  const [only, ...others] = own.map(({ Process }) => Process)
  if (only !== undefined && others.length === 0) return processPathOf(service, only)
  const names = items.map(({ Process }) => Process)
  throw new UsageError(`--process is needed; there are: ${names.join(', ') || 'none'}`)
}

/** Returns the only positional argument, the id of a transaction. @throws {UsageError} as {@link onlyWord} */
export const oneId = (words: readonly string[]): string =>
  transactionId('The id', onlyWord(words, 'The id of a transaction is needed'))

/**
 * Returns `text` if it is a valid transaction id. @throws {UsageError} the id is invalid; `what` names it in the
 * message.
 */
export const transactionId = (what: string, text: string): string =>
  validOption(what, TransactionID, text)

/** Returns the query `?replay=…`, or an empty string for the latest run. @throws {UsageError} the id is invalid. */
export function replayQuery(text: string | undefined): string {
  if (text === undefined) return ''
  const id = ReplayID.safeParse(wholeNumber('--replay', text))
  if (!id.success) throw new UsageError('--replay is too large')
  return `?replay=${id.data}`
}

/** Parses the value of `--data`, if it is given. @throws {UsageError} the value is not JSON. */
export function jsonOf(text: string | undefined): unknown {
  if (text === undefined) return undefined
  const value = parseJson(text, OWN_TEXT)
  if (value === undefined)
    throw new UsageError('--data is not JSON; a JSON string needs quotes: \'"text"\'')
  return value
}

export const reasonOption = texts('reason')
export const REASON_HELP = '  --reason TEXT       why, for the action log (at most 500 characters)'

/** Returns the text of `--reason`. @throws {UsageError} the text is too long or not on one line. */
export const reasonOf = (text: string | undefined): string | undefined =>
  validOption('--reason', Reason.optional(), text)
