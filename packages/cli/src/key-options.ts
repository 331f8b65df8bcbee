/** Reads the options of the commands `keys new`, `keys list` and `keys revoke`. */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { KeyEntry, KeyId } from '@integration-host/shared/access/key-list'
import type { KeyTerms } from '@integration-host/shared/access/new-key'
import type { Environment } from '@integration-host/shared/process/config'
import { UsageError } from './exit-code.ts'
import { embeddedSecretsFolder } from './settings.ts'

/**
 * Returns the path of the key file: `--file`, `SERVICE_KEYS_FILE`, or that of the embedded host if there is one.
 *
 * @throws {UsageError} there is none of them.
 */
export function keyFileOf(given: string | undefined, env: Environment): string {
  const named = given ?? (env['SERVICE_KEYS_FILE'] || undefined)
  if (named !== undefined) return resolve(named)
  const embedded = join(embeddedSecretsFolder(env), 'service_keys.json')
  if (existsSync(embedded)) return embedded
  throw new UsageError('The key file is needed: --file, or SERVICE_KEYS_FILE')
}

/** @throws {UsageError} the id is missing or not valid. */
export function keyIdOf(text: string | undefined): string {
  if (text === undefined) throw new UsageError('--id is needed')
  const id = KeyId.safeParse(text)
  if (!id.success) throw new UsageError(`--id ${id.error.issues[0]?.message ?? ''}`)
  return id.data
}

interface TermOptions {
  readonly id?: string | undefined
  readonly scope?: readonly string[] | undefined
  readonly realm?: readonly string[] | undefined
  readonly process?: readonly string[] | undefined
  readonly expires?: string | undefined
}

const optionOf = { scopes: '--scope', realms: '--realm', processes: '--process' } as const

/** Returns what a new key may do. @throws {UsageError} names the option that is missing or not valid. */
export function termsOf(options: TermOptions): KeyTerms {
  const parsed = KeyEntry.omit({ sha256: true }).safeParse({
    id: keyIdOf(options.id),
    scopes: listed(options.scope),
    realms: listed(options.realm),
    processes: listed(options.process),
    ...(options.expires !== undefined && { expires: timeOf(options.expires) }),
  })
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    const option = optionOf[issue?.path[0] as keyof typeof optionOf]
    throw new UsageError(`${option} ${issue?.message ?? ''}`)
  }
  const { scopes, realms, processes } = parsed.data
  // Without a realm or process these scopes would allow nothing. '*' must be written, so that no key gets more than was
  // asked for.
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
const listed = (lists: readonly string[] = []): string[] => [
  ...new Set(lists.flatMap((list) => list.split(',').map((part) => part.trim()))),
]

const HOUR_MS = 3_600_000
const UNITS = { h: HOUR_MS, d: 24 * HOUR_MS } as const

/** Returns a duration from now or a time as RFC 3339. @throws {UsageError} it is neither, or has passed. */
function timeOf(text: string): string {
  const [, amount, unit] = /^(\d{1,6})([dh])$/.exec(text) ?? []
  const isTime = KeyEntry.shape.expires.safeParse(text).success
  const at =
    amount !== undefined
      ? Date.now() + Number(amount) * UNITS[unit as keyof typeof UNITS]
      : isTime
        ? Date.parse(text)
        : Number.NaN
  if (Number.isNaN(at))
    throw new UsageError(
      '--expires must be a duration such as 90d or 12h, or a time such as 2027-01-31T00:00:00Z',
    )
  if (at <= Date.now()) throw new UsageError('--expires must be in the future')
  return new Date(at).toISOString().replace(/\.\d{3}Z$/, 'Z')
}
