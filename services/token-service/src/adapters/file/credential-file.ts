/**
 * The file that contains all credentials of the embedded host: one JSON object, with mode 0600, written by one process
 * at a time.
 *
 * F1  The state in memory changes only after the file was written, so a failed write has no effect.
 * F2  The file is replaced atomically and never changed in place (`writeFileAtomic` in durable-file.ts).
 * F3  If the file cannot be parsed or was encrypted with other keys, it is left unchanged and the start fails.
 */
import { chmod, readFile } from 'node:fs/promises'
import { z } from 'zod'
import { AuditHead, auditStart } from '@integration-host/shared/contracts/audit'
import { IntegrationError } from '@integration-host/shared/errors'
import { writeFileAtomic } from '@integration-host/shared/files/durable-file'
import { OWN_TEXT, parseJsonAs } from '@integration-host/shared/json'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import { OutboxEntry } from '../../credential/outbox.ts'

const CHECK_VALUE = 'these are the right keys'
const CHECK_VALUE_PLACE = { name: 'credentials:canary', field: 'canary', version: 1 }

const FileState = z.object({
  format: z.literal(1),
  /**
   * The key check value: a text that was encrypted with the key ring. It can be decrypted only if the configured key
   * ring is the right one.
   */
  canary: z.string(),
  /** The newest fencing token that the store has issued. */
  fence: z.int().nonnegative(),
  /** The number of the newest outbox entry. */
  sequence: z.int().nonnegative(),
  /** The stored fields of each credential (credential-record.ts), by name. */
  credentials: z.record(z.string(), z.record(z.string(), z.string())),
  /** The last version of each removed credential. A new grant under the same name gets the next version. */
  removed: z.record(z.string(), z.int().positive()),
  /** The time of each credential's next refresh, in epoch ms. */
  due: z.record(z.string(), z.number()),
  outbox: z.array(OutboxEntry.extend({ id: z.string() })),
  audited: AuditHead.extend({
    /** The number of the last outbox entry whose audit entries are in the audit file. */
    upTo: z.int().nonnegative(),
    /** The length of the valid part of the audit file, in bytes. */
    bytes: z.int().nonnegative(),
  }),
  /** For each sink of the audit log, the last entry that the sink has taken. */
  sinks: z.record(z.string(), AuditHead).optional(),
})
export type FileState = z.output<typeof FileState>

/**
 * The result of a function that changes the state. `next` is the new state; `null` if nothing changes. `result` is the
 * value with which `CredentialFile.change` resolves.
 */
export interface Change<T> {
  readonly next: FileState | null
  readonly result: T
}

export interface CredentialFile {
  readonly state: () => FileState
  /**
   * Runs one change at a time. Calls `decide` with the current state, writes the new state to the file, and resolves
   * with the result of `decide`. Rejects with the error of `decide` if it throws.
   *
   * @throws {IntegrationError} `store_unavailable` if the file cannot be written.
   */
  readonly change: <T>(decide: (current: FileState) => Change<T> | Promise<Change<T>>) => Promise<T>
  /**
   * Replaces the key check value by a new one that is encrypted with the active key. Resolves with the id of the key
   * that encrypted the previous value.
   */
  readonly retireKeys: () => Promise<readonly string[]>
}

/**
 * Reads the credential file, or begins with an empty state if there is no file.
 *
 * @throws {StartupError} if the file is damaged or was encrypted with other keys (F3).
 */
export async function openCredentialFile(path: string, keys: KeyRing): Promise<CredentialFile> {
  let state = await load(path, keys)
  let writing: Promise<unknown> = Promise.resolve()

  function change<T>(decide: (current: FileState) => Change<T> | Promise<Change<T>>): Promise<T> {
    const run = async (): Promise<T> => {
      const { next, result } = await decide(state)
      if (next !== null) {
        await writeFileAtomic(path, JSON.stringify(next)).catch((cause: unknown) => {
          throw unwritable(cause)
        })
        state = next // The state changes only after the file was written (F1).
      }
      return result
    }
    const changed = writing.then(run)
    writing = changed.catch(() => {})
    return changed
  }

  return {
    state: () => state,
    change,
    retireKeys: () =>
      change<readonly string[]>((current) => {
        if (keys.isCurrent(current.canary)) return unchanged([])
        const [, retired = ''] = current.canary.split('.')
        const canary = keys.seal(CHECK_VALUE, CHECK_VALUE_PLACE)
        return { next: { ...current, canary }, result: [retired] }
      }),
  }
}

async function load(path: string, keys: KeyRing): Promise<FileState> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    return {
      format: 1,
      canary: keys.seal(CHECK_VALUE, CHECK_VALUE_PLACE),
      fence: 0,
      sequence: 0,
      credentials: {},
      removed: {},
      due: {},
      outbox: [],
      audited: { ...auditStart, upTo: 0, bytes: 0 },
    }
  }
  // The mode is set again, because a file that was restored from a backup may be readable by other users.
  await chmod(path, 0o600)
  const state = parseJsonAs(FileState, text, OWN_TEXT)
  // A damaged file is left unchanged, and the start fails (F3).
  if (state === null) {
    throw new StartupError(
      `${path} is damaged: restore it from a backup, or move it away and connect the companies again`,
    )
  }
  try {
    keys.open(state.canary, CHECK_VALUE_PLACE)
  } catch {
    throw new StartupError(
      `${path} was written with other CREDENTIAL_KEYS: set those again, or move the file away and connect the companies again`,
    )
  }
  return state
}

/** Returns the result of a change that leaves the state as it is, so that nothing is written. */
export const unchanged = <T>(result: T): Change<T> => ({ next: null, result })

/** Returns the error for a file that cannot be written. */
export const unwritable = (cause: unknown): IntegrationError =>
  new IntegrationError('store_unavailable', 'the credential file cannot be written', {
    cause,
    retryAfterSeconds: 1,
  })
