/** Stores the content of uploaded files, and the temporary addresses at which the files can be downloaded. */
import { type Body, forgetOldest } from './posted-entities.ts'

export interface StoredFile {
  readonly name: string
  readonly contentType: string
  readonly bytes: Uint8Array<ArrayBuffer>
}

/** According to Intuit's documentation, the address of a download is valid for 15 minutes. */
const DOWNLOAD_MS = 15 * 60_000
/** The maximum total size of all stored files, which limits the memory use of the sandbox. */
const STORED_BYTES = 64 * 1_024 * 1_024
const STORED_FILES = 1_000
const STORED_KEYS = 1_000
const STORED_RESPONSES = 1_000

/**
 * @param now returns the time in epoch milliseconds
 * @param random returns a random string that cannot be guessed
 */
export function createAttachments(now: () => number, random: () => string) {
  /** The files by company and id, in the order in which they were uploaded. */
  const files = new Map<string, StoredFile>()
  const keys = new Map<string, { readonly file: string; readonly expiresAt: number }>()
  const responses = new Map<string, Body>()
  let bytes = 0

  function removeFile(name: string): void {
    bytes -= files.get(name)?.bytes.length ?? 0
    files.delete(name)
  }

  return {
    /** Stores the content of an attachable. If all files together exceed the limit, the oldest ones are deleted. */
    put(realm: string, id: string, file: StoredFile): void {
      const name = `${realm}/${id}`
      removeFile(name)
      files.set(name, file)
      bytes += file.bytes.length
      for (const oldest of files.keys()) {
        if (bytes <= STORED_BYTES && files.size <= STORED_FILES) break
        removeFile(oldest)
      }
    },
    /**
     * Returns a key with which anyone can download the file for 15 minutes without an access token; `null` if the
     * company has no such file. The key is therefore a secret.
     */
    temporaryKey(realm: string, id: string): string | null {
      const file = `${realm}/${id}`
      if (!files.has(file)) return null
      const key = random()
      keys.set(key, { file, expiresAt: now() + DOWNLOAD_MS })
      forgetOldest(keys, STORED_KEYS)
      return key
    },
    /** Returns the file that belongs to a key; `null` if the key is unknown or has expired, or the file was deleted. */
    file(key: string): StoredFile | null {
      const found = keys.get(key)
      if (found === undefined || found.expiresAt <= now()) return null
      return files.get(found.file) ?? null
    },
    /** Returns the response to an earlier upload with this `requestid` for the company; `null` if there is none. */
    response: (realm: string, requestId: string): Body | null =>
      responses.get(`${realm}/${requestId}`) ?? null,
    setResponse(realm: string, requestId: string, document: Body): void {
      responses.set(`${realm}/${requestId}`, document)
      forgetOldest(responses, STORED_RESPONSES)
    },
    reset() {
      responses.clear()
      files.clear()
      keys.clear()
      bytes = 0
    },
  }
}
