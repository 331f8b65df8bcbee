// Creates the keys of callers at the first start of a compose stack, and lists their digests in the key file. The key
// file does not list the key with which the services call one another, because each service gets that key in
// SERVICE_API_KEY.
import {
  changeKeyList,
  KeyListInvalid,
  readKeyList,
} from '../packages/shared/src/access/change-key-list.ts'
import {
  type KeyEntry,
  entryOf,
  installationKeys,
  type KeyTerms,
  newKey,
} from '../packages/shared/src/access/key-list.ts'
import { Secret } from '../packages/shared/src/secrets/secret.ts'
import { readSecret } from './secret-file.ts'

/** The permissions of each caller's key. */
const terms = {
  application: installationKeys.application,
  operator: installationKeys.operator,
  console: installationKeys.console,
  /** The key of the demo API allows only queuing and replaying transactions of the demo's process. */
  'demo-api': {
    id: 'demo-api',
    scopes: ['transactions:queue', 'transactions:operate'],
    realms: [],
    processes: ['OrderProcess'],
  },
} as const satisfies Readonly<Record<string, KeyTerms>>
export type KeyHolder = keyof typeof terms
const holders = Object.keys(terms) as KeyHolder[]

/** @returns why the key file cannot be used; `null` if it is valid or does not exist. */
export const keyFileFlaw = (path: string): Promise<string | null> =>
  readKeyList(path).then(
    () => null,
    (error: unknown) => {
      if (!(error instanceof KeyListInvalid)) throw error
      return `is not a valid key file (${error.faults.join('; ')})`
    },
  )

/**
 * Returns the key of each holder. A key that does not exist is created, and its entry replaces the entry with the same
 * id in the key file. The digest is listed before the key is stored. If `init` is killed between these two writes, the
 * next start creates the key again. An existing key whose entry was removed from the file stays revoked.
 *
 * @param fileOf the path of the file in which the key of a holder is stored
 * @param store writes a key to its file
 */
export async function keysOfHolders(
  keyFile: string,
  fileOf: (holder: KeyHolder) => string,
  store: (path: string, key: string) => void,
): Promise<Readonly<Record<KeyHolder, string>>> {
  const listed = await readKeyList(keyFile)
  const keys: Partial<Record<KeyHolder, string>> = {}
  const entries: KeyEntry[] = []
  for (const holder of holders) {
    const kept = readSecret(fileOf(holder))
    const { key, entry } = kept === null ? newKey(terms[holder]) : existing(kept, terms[holder])
    keys[holder] = key.reveal()
    if (kept === null || listed === null) entries.push(entry)
  }
  if (entries.length > 0) {
    const isReplaced = ({ id }: KeyEntry): boolean => entries.some((entry) => entry.id === id)
    await changeKeyList(keyFile, (before) => [
      ...before.filter((entry) => !isReplaced(entry)),
      ...entries,
    ])
    console.log(`${listed === null ? 'created' : 'changed'} ${keyFile}`)
  }
  const all = keys as Record<KeyHolder, string>
  for (const holder of holders) store(fileOf(holder), all[holder])
  return all
}

function existing(
  text: string,
  holder: KeyTerms,
): { readonly key: Secret; readonly entry: KeyEntry } {
  const key = new Secret(text.trim())
  return { key, entry: entryOf(key, holder) }
}
