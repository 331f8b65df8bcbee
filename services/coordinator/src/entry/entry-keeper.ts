/** Turns what the calls of an attempt have written into entries. */
import { createHmac, createSecretKey, hash, type KeyObject } from 'node:crypto'
import { type InstallationKeyDeps, readInstallationKey } from '../records/installation-key.ts'
import type { RunKey } from '../run/run.ts'
import type { EntryRow, NewEntry } from './book-entry.ts'
import { valueAt, type WrittenObject } from './written-objects.ts'
import type { Mark } from './marks.ts'

type StepKey = RunKey & { readonly StepName: string }

/** The row of `Order_Installation` that contains the key of the hashes. */
const NAME = 'EntryKey'
const HASH_CHARACTERS = 16

export type EntryKeeper = ReturnType<typeof createEntryKeeper>

export function createEntryKeeper(deps: InstallationKeyDeps) {
  let key: Promise<HashKey> | null = null
  const read = async (): Promise<HashKey> => {
    try {
      return await (key ??= readInstallationKey(deps, NAME).then(hashKey))
    } catch (error) {
      key = null
      throw error
    }
  }
  return {
    /** Returns the HMAC-SHA-256 of a mark in hexadecimal. */
    async markOf({ realm, entity, field, value }: Mark): Promise<string> {
      return hmacOf(await read(), ['mark', realm, entity, field, value])
    },
    /** Returns the entries of what the calls of a step have written. The key of the hashes is read once. */
    async entriesOf(run: StepKey, written: readonly WrittenObject[]): Promise<NewEntry[]> {
      const known = await read()
      return written.map(({ realm, entity, id, operation, syncToken, fields }) => ({
        EntryID: entryId(run, { realm, entity, id, operation, syncToken }),
        Realm: realm,
        Entity: entity,
        EntityID: id,
        Operation: operation,
        SyncToken: syncToken,
        FieldsKey: known.id,
        Fields: Object.fromEntries(
          [...fields].map(([path, value]) => [
            path,
            hashOf(known, [realm, entity, id, path, value]),
          ]),
        ),
      }))
    },
    /**
     * Returns the paths of the written fields whose values differ in an object of the books; `null` if they cannot be
     * compared, because the run was erased or the key of the hashes was lost.
     */
    async changedFields(
      {
        Realm,
        Entity,
        EntityID,
        Fields,
        FieldsKey,
      }: Pick<EntryRow, 'Realm' | 'Entity' | 'EntityID' | 'Fields' | 'FieldsKey'>,
      object: Readonly<Record<string, unknown>>,
    ): Promise<readonly string[] | null> {
      const known = await read()
      if (Fields === null || FieldsKey !== known.id) return null
      const isSame = ([path, stored]: [string, string]): boolean => {
        const value = valueAt(object, path)
        return (
          value !== undefined && hashOf(known, [Realm, Entity, EntityID, path, value]) === stored
        )
      }
      return Object.entries(Fields).flatMap((field) => (isSame(field) ? [] : [field[0]]))
    },
  }
}

interface HashKey {
  readonly key: KeyObject
  /** Identifies the key. */
  readonly id: string
}

const hashKey = (secret: string): HashKey => ({
  // A key object is faster than text, which would be converted for each hash.
  key: createSecretKey(secret, 'utf8'),
  id: createHmac('sha256', secret).update(NAME).digest('hex').slice(0, HASH_CHARACTERS),
})

/** Returns the HMAC-SHA-256 in hexadecimal. The parts are one JSON text, so that no two lists have the same text. */
const hmacOf = ({ key }: HashKey, parts: readonly string[]): string =>
  createHmac('sha256', key).update(JSON.stringify(parts)).digest('hex')

const hashOf = (key: HashKey, parts: readonly string[]): string =>
  hmacOf(key, parts).slice(0, HASH_CHARACTERS)

/**
 * Returns the id of an entry, which is the same if the same write is recorded again (B2). Different writes of a step to an
 * object differ in its version. An object is created once, so the id of its creation does not depend on the run.
 */
function entryId(
  run: StepKey,
  { realm, entity, id, operation, syncToken }: Omit<WrittenObject, 'fields'>,
): string {
  const write = [realm, entity, id, operation]
  const writer = [syncToken, run.Process, run.TransactionID, run.ReplayID, run.StepName]
  const text = JSON.stringify(operation === 'create' ? write : [...write, ...writer])
  return hash('sha256', text).slice(0, 32)
}
