import {
  changeKeyList,
  KeyListInvalid,
  readKeyList,
} from '@integration-host/shared/access/change-key-list'
import { type KeyEntry, type KeyTerms, newKey } from '@integration-host/shared/access/key-list'
import { SCOPES } from '@integration-host/shared/access/scope'
import { OpenLinks, OpenOperations } from '@integration-host/shared/contracts/operations'
import { FileLocked } from '@integration-host/shared/files/folder-lock'
import { reasonOf } from '@integration-host/shared/observability/health'
import { type Command, expectNone, parse } from '../command.ts'
import { CommandFailed, exitCodes, UsageError } from '../exit-code.ts'
import { keyFileOf, keyIdOf, termsOf } from '../key-options.ts'
import { openCoordinator, openTokenService } from '../service-api.ts'
import { createTable, notify, print, type Terminal } from '../terminal.ts'

const FILE_HELP = `  --file FILE         the key file (default SERVICE_KEYS_FILE; without it that of the embedded host,
                      data/secrets/service_keys.json)`

/** Returns the path of the key file. @throws {UsageError} no path is given, or there are further arguments. */
function keyFileFrom(
  { file, url }: { readonly file?: string | undefined; readonly url?: string | undefined },
  positionals: readonly string[],
  { env }: Terminal,
): string {
  expectNone(positionals)
  if (url !== undefined)
    throw new UsageError('keys changes a file and calls no service: --file instead of --url')
  return keyFileOf(file, env)
}

/** A key without its digest, as the commands print it. */
const publicOf = ({ id, scopes, realms, processes, expires }: KeyTerms) => ({
  id,
  scopes,
  realms,
  processes,
  ...(expires !== undefined && { expires }),
})

export const makeKey: Command = {
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
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      id: { type: 'string' },
      scope: { type: 'string', multiple: true },
      realm: { type: 'string', multiple: true },
      process: { type: 'string', multiple: true },
      expires: { type: 'string' },
      file: { type: 'string' },
    })
    const file = keyFileFrom(values, positionals, terminal)
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
    const shown = { key: key.reveal(), ...publicOf(entry) }
    await print(terminal, values.json ? JSON.stringify(shown) : key.reveal())
    return exitCodes.ok
  },
}

export const listKeys: Command = {
  summary: 'list the keys with what they may do',
  usage: '',
  help: `Lists the keys of the key file. The file has no keys, only their digests, which are not printed. The keys in
SERVICE_API_KEY and SERVICE_API_KEYS are not in the file.
With --json each line is one key.

${FILE_HELP}

Examples:
  integration-host keys list
  integration-host keys list --json | jq -r 'select(.scopes | contains(["custody:transfer"])) | .id'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, { file: { type: 'string' } })
    const file = keyFileFrom(values, positionals, terminal)
    const keys = await using(file, () => readKeyList(file))
    if (keys === null) throw new CommandFailed(exitCodes.failed, `${file} does not exist.`)
    const table = createTable(['ID', 'SCOPES', 'REALMS', 'PROCESSES', 'EXPIRES'])
    const lines = values.json
      ? keys.map((key) => JSON.stringify(publicOf(key)))
      : table(
          keys.map(({ id, scopes, realms, processes, expires }) => [
            id,
            scopes.join(' '),
            realms.join(' '),
            processes.join(' '),
            expiryOf(expires, terminal.wallClock()),
          ]),
        )
    await print(terminal, ...lines)
    return exitCodes.ok
  },
}

export const revokeKey: Command = {
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
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      id: { type: 'string' },
      keep: { type: 'boolean' },
      file: { type: 'string' },
    })
    const file = keyFileFrom(values, positionals, terminal)
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
    await print(terminal, values.json ? JSON.stringify({ id }) : `${id} is revoked.`)
    return exitCodes.ok
  },
}

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
      if (!(error instanceof CommandFailed || error instanceof UsageError)) throw error
      notify(
        terminal,
        `The ${what} of ${id} no longer act, but could not be withdrawn: ${error.message} Run the command again before you make another key ${id}.`,
      )
    }
  return withdrawn
}

const expiryOf = (expires: string | undefined, now: number): string =>
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
    throw failed(file, error)
  }
}

function failed(file: string, error: unknown): CommandFailed {
  if (error instanceof CommandFailed) return error
  if (error instanceof KeyListInvalid)
    return new CommandFailed(
      exitCodes.failed,
      [
        `${file} is not a valid key file, and was not changed:`,
        ...error.faults.map((fault) => `  ${fault}`),
      ].join('\n'),
    )
  if (error instanceof FileLocked)
    return new CommandFailed(
      exitCodes.failed,
      `${file} is being changed by another command. Try again.`,
    )
  return new CommandFailed(exitCodes.failed, `${file} cannot be used (${reasonOf(error)}).`)
}
