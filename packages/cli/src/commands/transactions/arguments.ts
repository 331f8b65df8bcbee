/** The schemas, options and checks of arguments that the commands on transactions share. */
import { HeaderView, ReplayID, TransactionID } from '@integration-host/shared/contracts/transaction'
import { Reason } from '@integration-host/shared/contracts/text'
import { OWN_TEXT, parseJson } from '@integration-host/shared/json'
import { z } from 'zod'
import { expectNone, validOption, wholeNumber } from '../../command.ts'
import { UsageError } from '../../exit-code.ts'
import type { ServiceApi } from '../../service-api.ts'
import { plain, print, type Terminal } from '../../terminal.ts'

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

export const processOption = { process: { type: 'string' } } as const
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

/**
 * Returns the only positional argument, the id of a transaction.
 *
 * @throws {UsageError} the id is missing or invalid, or there are further arguments.
 */
export function oneId(positionals: readonly string[]): string {
  const [id, ...rest] = positionals
  if (id === undefined) throw new UsageError('The id of a transaction is needed')
  expectNone(rest)
  return transactionId('The id', id)
}

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

/** Parses the value of `--data`. @throws {UsageError} the value is not JSON. */
export function jsonOf(text: string): unknown {
  const value = parseJson(text, OWN_TEXT)
  if (value === undefined)
    throw new UsageError('--data is not JSON; a JSON string needs quotes: \'"text"\'')
  return value
}

export const reasonOption = { reason: { type: 'string' } } as const
export const REASON_HELP = '  --reason TEXT       why, for the action log (at most 500 characters)'

/** Returns the text of `--reason`. @throws {UsageError} the text is too long or not on one line. */
export const reasonOf = (text: string | undefined): string | undefined =>
  validOption('--reason', Reason.optional(), text)

/** The options of the commands that change a run. */
export const actOptions = { ...reasonOption, 'if-version': { type: 'string' } } as const
export const ACT_HELP = `${REASON_HELP}
  --if-version N      only if the run still has this version, which transactions show prints; give --replay too`

/** Returns the body and the options of a request that changes a run. @throws {UsageError} an option is invalid. */
export function actOf(values: {
  readonly reason?: string | undefined
  readonly 'if-version'?: string | undefined
}) {
  const text = values['if-version']
  const ifVersion = text === undefined ? undefined : wholeNumber('--if-version', text)
  return { body: { Reason: reasonOf(values.reason) }, options: { ifVersion } }
}

/** Prints the run that a command changed: as JSON if `isJson` is set, otherwise as `text`. */
export async function printOutcome(
  terminal: Terminal,
  header: Header,
  isJson: boolean | undefined,
  text: string,
): Promise<void> {
  await print(terminal, isJson ? JSON.stringify(header) : plain(text))
}
