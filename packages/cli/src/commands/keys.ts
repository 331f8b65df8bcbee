import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import {
  changeKeyList,
  KeyListInvalid,
  readKeyList,
} from '@integration-host/shared/access/change-key-list'
import { KeyEntry, KeyId, type KeyTerms, newKey } from '@integration-host/shared/access/key-list'
import { SCOPES } from '@integration-host/shared/access/scope'
import { OpenLinks, OpenOperations } from '@integration-host/shared/contracts/operations'
import { FileLocked } from '@integration-host/shared/files/durable-file'
import { reasonOf } from '@integration-host/shared/observability/health'
import {
  defineCommand,
  flags,
  type Given,
  invalidOption,
  lists,
  texts,
  validOption,
} from '../command.ts'
import { CommandFailed, exitCodes, UsageError } from '../exit-code.ts'
import { openCoordinator, openTokenService } from '../service-api.ts'
import { embeddedSecretsFolder } from '../settings.ts'
import { createTable, notify, print, type Terminal } from '../terminal.ts'
import { timeOf } from '../times.ts'

const FILE_HELP = `  --file FILE         the key file (default SERVICE_KEYS_FILE; without it that of the embedded host,
                      data/secrets/service_keys.json)`

/**
 * Returns the path of the key file: the value of `--file` or of `SERVICE_KEYS_FILE`, or else the key file of the
 * embedded host.
 *
 * @throws {UsageError} no path is given, and the embedded host has no key file.
 */
function keyFileOf(
  { file, url }: { readonly file?: string | undefined; readonly url?: string | undefined },
  { env }: Terminal,
): string {
  if (url !== undefined)
    throw new UsageError('keys changes a file and calls no service: --file instead of --url')
  const named = file ?? (env['SERVICE_KEYS_FILE'] || undefined)
  if (named !== undefined) return resolve(named)
  const embedded = join(embeddedSecretsFolder(env), 'service_keys.json')
  if (existsSync(embedded)) return embedded
  throw new UsageError('The key file is needed: --file, or SERVICE_KEYS_FILE')
}

const keyOptions = { ...lists('scope', 'realm', 'process'), ...texts('id', 'expires', 'file') }

/** A key without its digest, as the commands print it. */
const publicOf = ({ id, scopes, realms, processes, expires }: KeyTerms) => ({
  id,
  scopes,
  realms,
  processes,
  ...(expires !== undefined && { expires }),
})

export const makeKey = defineCommand({
  summary: 'make a key for a caller, and print it once',
  usage: '--id ID --scope SCOPE… [--realm REALM…] [--process PROCESS…] [--expires WHEN]',
  help: `Makes a key, adds its digest to the key file and prints the key. It cannot be printed again. Services that read
the file accept the key within a second. A missing file is created.

  --id ID             the name of the key in logs and in the audit log
  --scope SCOPE       what the key may do; several: --scope a,b or --scope a --scope b
  --realm REALM       the companies that it may use: a realm, a prefix such as '93414*', or '*'; repeatable
  --process PROCESS   the processes that it may use, in the same form; repeatable
  --expires WHEN      a duration such as 90d or 12h, or a time such as 2027-01-31T00:00:00Z (default: never)
${FILE_HELP}

Scopes: ${SCOPES.slice(0, 6).join(' ')}
        ${SCOPES.slice(6).join(' ')}

Examples:
  integration-host keys new --id erp --scope gateway:read,transactions:queue --realm '*' --process OrderProcess
  integration-host keys new --id move --scope custody:transfer,credentials:read --realm '*' --expires 12h`,
  options: keyOptions,
  async run({ values, terminal, output }) {
    const file = keyFileOf(values, terminal)
    const { key, entry } = newKey(termsOf(values, terminal.wallClock()))
    await change(file, (keys) => {
      if (keys.some(({ id }) => id === entry.id))
        throw new CommandFailed(
          exitCodes.failed,
          `${file} already has a key ${entry.id}. Revoke it first, or choose another id.`,
        )
      return [...keys, entry]
    })
    notify(terminal, `The key ${entry.id}, which cannot be printed again:`)
    await output({ key: key.reveal(), ...publicOf(entry) }, key.reveal())
  },
})

export const listKeys = defineCommand({
  summary: 'list the keys with what they may do',
  usage: '',
  help: `Lists the keys of the key file. The file has no keys, only their digests, which are not printed. The keys in
SERVICE_API_KEY and SERVICE_API_KEYS are not in the file.
With --json each line is one key.

${FILE_HELP}

Examples:
  integration-host keys list
  integration-host keys list --json | jq -r 'select(.scopes | contains(["custody:transfer"])) | .id'`,
  options: texts('file'),
  async run({ values, terminal }) {
    const file = keyFileOf(values, terminal)
    const keys = await using(file, () => readKeyList(file))
    if (keys === null) throw new CommandFailed(exitCodes.failed, `${file} does not exist.`)
    const table = createTable<KeyEntry>({
      ID: 'id',
      SCOPES: ({ scopes }) => scopes.join(' '),
      REALMS: ({ realms }) => realms.join(' '),
      PROCESSES: ({ processes }) => processes.join(' '),
      EXPIRES: ({ expires }) => shownExpiry(expires, terminal.wallClock()),
    })
    const lines = values.json ? keys.map((key) => JSON.stringify(publicOf(key))) : table(keys)
    await print(terminal, ...lines)
  },
})

export const revokeKey = defineCommand({
  summary: 'make services reject a key',
  usage: '--id ID [--keep]',
  help: `Removes a key from the key file. Services that read the file reject it within a second. Requests that a service
has already accepted are completed. What the key has made ends with it: unused connect links and pending authorizations
can no longer be used, and its bulk operations stop. The command withdraws the links and stops the operations at
token-service and coordinator and says how many there were, so that they do not come back if another key gets this id.
That needs a key with credentials:manage and transactions:operate in SERVICE_API_KEY. If a service cannot be reached, the
key is revoked nevertheless; run the command again later.

  --id ID             the name of the key
  --keep              let the connect links and bulk operations of the key go on without it; the key is revoked only if
                      both services have accepted this
${FILE_HELP}

Examples:
  integration-host keys revoke --id erp
  integration-host keys revoke --id erp --keep`,
  options: { ...texts('id', 'file'), ...flags('keep') },
  async run({ values, terminal, output }) {
    const file = keyFileOf(values, terminal)
    const id = keyIdOf(values.id)
    if (values.keep === true) await keepOpenWork(id, terminal)
    let isListed = false
    await change(file, (keys) => {
      const others = keys.filter((key) => key.id !== id)
      isListed = others.length < keys.length
      return others
    })
    const withdrawn = values.keep === true ? 0 : await withdrawOpenWork(id, terminal)
    if (!isListed && withdrawn === 0)
      throw new CommandFailed(exitCodes.notFound, `${file} has no key ${id}.`)
    await output({ id }, `${id} is revoked.`)
  },
})

/** What a key may have made that goes on: the service that stores it, and what its responses count. */
const OPEN_WORK = [
  {
    open: openTokenService,
    schema: OpenLinks.transform(({ ConnectLinks }) => ConnectLinks),
    what: 'unused connect links',
  },
  {
    open: openCoordinator,
    schema: OpenOperations.transform(({ Operations }) => Operations),
    what: 'bulk operations',
  },
] as const

/** @throws {CommandFailed} a service cannot be reached or rejects the request. The key is then not revoked. */
async function keepOpenWork(id: string, terminal: Terminal): Promise<void> {
  for (const { open, schema, what } of OPEN_WORK) {
    const count = await open(undefined, terminal).post(`/keys/${id}/open/keep`, undefined, schema)
    if (count > 0) notify(terminal, `${count} ${what} of ${id} go on without the key.`)
  }
}

/** Withdraws what a key has made, and returns how much there was. A service that cannot be used is named only. */
async function withdrawOpenWork(id: string, terminal: Terminal): Promise<number> {
  let withdrawn = 0
  for (const { open, schema, what } of OPEN_WORK)
    try {
      const service = open(undefined, terminal)
      const { data: count } = await service.send(`/keys/${id}/open`, schema, { method: 'DELETE' })
      withdrawn += count
      if (count > 0) notify(terminal, `${count} ${what} of ${id} were withdrawn.`)
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error
      notify(
        terminal,
        `The ${what} of ${id} no longer act, but could not be withdrawn: ${error.message} Run the command again before you make another key ${id}.`,
      )
    }
  return withdrawn
}

const shownExpiry = (expires: string | undefined, now: number): string =>
  expires === undefined ? 'never' : Date.parse(expires) <= now ? `${expires} (expired)` : expires

const change = (
  file: string,
  to: (keys: readonly KeyEntry[]) => readonly KeyEntry[],
): Promise<void> => using(file, () => changeKeyList(file, to))

/** Runs `work` on the key file. @throws {CommandFailed} the file cannot be used; the message says why. */
async function using<T>(file: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof CommandFailed) throw error
    const message =
      error instanceof KeyListInvalid
        ? [
            `${file} is not a valid key file, and was not changed:`,
            ...error.faults.map((fault) => `  ${fault}`),
          ].join('\n')
        : error instanceof FileLocked
          ? `${file} is being changed by another command. Try again.`
          : `${file} cannot be used (${reasonOf(error)}).`
    throw new CommandFailed(exitCodes.failed, message)
  }
}

/** Returns the value of `--id`. @throws {UsageError} the id is missing or not valid. */
function keyIdOf(text: string | undefined): string {
  if (text === undefined) throw new UsageError('--id is needed')
  return validOption('--id', KeyId, text)
}

const optionOf = { scopes: '--scope', realms: '--realm', processes: '--process' } as const

/**
 * Returns the permissions of a new key from the options of `keys new`.
 *
 * @param now milliseconds since the epoch
 * @throws {UsageError} names the option that is missing or not valid.
 */
function termsOf(options: Given<typeof keyOptions>['values'], now: number): KeyTerms {
  const parsed = KeyEntry.omit({ sha256: true }).safeParse({
    id: keyIdOf(options.id),
    scopes: listed(options.scope),
    realms: listed(options.realm),
    processes: listed(options.process),
    ...(options.expires !== undefined && { expires: expiryOf(options.expires, now) }),
  })
  if (!parsed.success) {
    const option = optionOf[parsed.error.issues[0]?.path[0] as keyof typeof optionOf]
    throw invalidOption(option, parsed.error)
  }
  const { scopes, realms, processes } = parsed.data
  // A key with one of these scopes needs a realm or process, because otherwise it could do nothing. A missing option
  // does not mean '*', so that no key gets more permissions than intended.
  const ofRealm = scopes.find((scope) => /^(?:gateway|credentials|custody):/.test(scope))
  if (ofRealm !== undefined && realms.length === 0)
    throw new UsageError(`--realm is needed for the scope ${ofRealm}; '*' stands for every company`)
  const ofProcess = scopes.find((scope) => scope.startsWith('transactions:'))
  if (ofProcess !== undefined && processes.length === 0)
    throw new UsageError(
      `--process is needed for the scope ${ofProcess}; '*' stands for every process`,
    )
  return parsed.data
}

/** Returns the parts of comma-separated lists. */
const listed = (given: readonly string[] = []): string[] => [
  ...new Set(given.flatMap((list) => list.split(',').map((part) => part.trim()))),
]

/** Returns a time in UTC without milliseconds. @throws {UsageError} the text is not a time, or the time has passed. */
function expiryOf(text: string, now: number): string {
  const time = new Date(timeOf('--expires', text, now, 'future'))
  if (time.getTime() <= now) throw new UsageError('--expires must be in the future')
  return time.toISOString().replace(/\.\d{3}Z$/, 'Z')
}
