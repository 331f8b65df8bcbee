/**
 * The write-ahead log of the memory source, which is stored beside a snapshot of the whole state. When `append` has
 * resolved, its entry is on the disk.
 *
 * J1  A line is `<crc32> <JSON>`. Only the last line can be incomplete. Its append was never acknowledged, so
 *     opening the log removes that line. An invalid line before the last one means damage, and opening fails.
 * J2  Entries are numbered, and a snapshot contains the number of its last entry. Therefore each entry is applied once
 *     even after a crash between writing a snapshot and truncating the log.
 * J3  Appends are flushed in batches: appends that arrive during a flush are written together by the next flush.
 * J4  If a batch cannot be written, the log is truncated to its previous length. All appends of this batch are
 *     rejected, and so are all appends that wait for the next batch.
 */
import { writeFileAtomic } from '@integration-host/shared/files/durable-file'
import { OWN_TEXT, parseJsonObject } from '@integration-host/shared/json'
import { existsSync, readFileSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import { StartupError } from '@integration-host/shared/process/lifecycle'

export interface Journal {
  append(entry: unknown): Promise<void>
  /**
   * Rewrites the snapshot and empties the log, so that neither contains earlier states.
   *
   * @throws an error with the operating system's `code` if a file cannot be written.
   */
  compact(): Promise<void>
  close(): Promise<void>
}

/** The file operations of the log. Tests replace them to simulate disk faults. */
export interface JournalFile extends Pick<FileHandle, 'datasync' | 'sync' | 'truncate' | 'close'> {
  appendFile(lines: string): Promise<void>
}

export interface JournalOptions {
  readonly snapshotPath: string
  readonly journalPath: string
  /** Opens the log for appending and creates it if it is missing. By default, the log is a file on the disk. */
  readonly openFile?: ((path: string) => Promise<JournalFile>) | undefined
  /** Returns the whole state, to be written as the snapshot. */
  readonly state: () => unknown
  /** Called before the promises of failed appends are rejected: a single call for all appends that fail together. */
  readonly onFailure: () => void
}

interface Loaded {
  readonly state: unknown
  readonly entries: readonly unknown[]
  readonly lastNumber: number
  /** The length of the log in bytes up to the end of its last complete line. */
  readonly length: number
}

const FORMAT = 'integration-host transactions 1'
const COMPACT_BYTES = 8_388_608

/**
 * Reads the snapshot and the log; the state is `null` if there is no snapshot.
 *
 * @throws {StartupError} if a file is damaged; the error names the file. No file is changed.
 */
export function readJournal(snapshotPath: string, journalPath: string): Loaded {
  const snapshot = readSnapshot(snapshotPath)
  const bytes = readIfThere(journalPath) ?? Buffer.alloc(0)
  const entries: unknown[] = []
  let lastNumber = snapshot.lastNumber
  let length = 0
  while (length < bytes.length) {
    const end = bytes.indexOf(0x0a, length)
    const line = end === -1 ? null : parseLine(bytes.toString('utf8', length, end))
    if (line === null) {
      // An invalid line that no valid line follows is the incomplete end of an append that was never acknowledged.
      if (end === -1 || !hasWholeLine(bytes, end + 1)) break
      throw damaged(journalPath)
    }
    if (line.n > lastNumber) {
      entries.push(line.entry)
      lastNumber = line.n
    }
    length = end + 1
  }
  return { state: snapshot.state, entries, lastNumber, length }
}

function hasWholeLine(bytes: Buffer, from: number): boolean {
  for (let start = from; start < bytes.length;) {
    const end = bytes.indexOf(0x0a, start)
    if (end === -1) return false
    if (parseLine(bytes.toString('utf8', start, end)) !== null) return true
    start = end + 1
  }
  return false
}

function parseLine(line: string): { n: number; entry: unknown } | null {
  const [sum, text] = [line.slice(0, 8), line.slice(9)]
  if (sum !== checksum(text)) return null
  return JSON.parse(text) as { n: number; entry: unknown }
}

const checksum = (text: string): string => crc32(text).toString(16).padStart(8, '0')

function readSnapshot(path: string): { state: unknown; lastNumber: number } {
  const text = readIfThere(path)?.toString('utf8')
  if (text === undefined) return { state: null, lastNumber: 0 }
  const { format, n, state } = parseJsonObject(text, OWN_TEXT) ?? {}
  if (format !== FORMAT || typeof n !== 'number') throw damaged(path)
  return { state, lastNumber: n }
}

function readIfThere(path: string): Buffer | undefined {
  try {
    return readFileSync(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** Returns the error for a file whose content is invalid. */
export const damaged = (path: string): StartupError =>
  new StartupError(
    `${path} is damaged and was not changed: restore it from a backup, or move it away to start empty`,
  )

/** Opens the log for appending after the last entry that `readJournal` found. Removes an incomplete last line. */
export async function openJournal(
  options: JournalOptions,
  { lastNumber, length }: Pick<Loaded, 'lastNumber' | 'length'>,
): Promise<Journal> {
  const { snapshotPath, journalPath, state, onFailure } = options
  const { openFile = (path) => open(path, 'a+', 0o600) } = options
  interface Pending {
    readonly line: string
    readonly resolve: () => void
    readonly reject: (error: unknown) => void
  }
  const file = await openFile(journalPath)
  let pending: Pending[] = []
  let compactions: Omit<Pending, 'line'>[] = []
  let number = lastNumber
  let durableLength = length
  let isTailClean = true
  let writing: Promise<void> | null = null

  async function write(): Promise<void> {
    while (pending.length > 0 || compactions.length > 0) {
      const batch = pending
      pending = []
      try {
        await flush(batch.map(({ line }) => line).join(''))
      } catch (error) {
        // The appends that arrived after the failed batch are rejected too, because they may depend on the changes of
        // the failed appends.
        const later = [...pending, ...compactions]
        pending = []
        compactions = []
        onFailure()
        for (const { reject } of [...batch, ...later]) reject(error)
        continue
      }
      for (const { resolve } of batch) resolve()
      const requested = compactions
      compactions = []
      if (requested.length === 0 && durableLength <= COMPACT_BYTES) continue
      const failure = await compact().then(
        () => null,
        (error: unknown) => ({ error }),
      )
      for (const { resolve, reject } of requested)
        if (failure === null) resolve()
        else reject(failure.error)
    }
    // `writing` is reset before the promise settles. If it were reset later, an append that arrives between the last
    // check and the settling would never be written.
    writing = null
  }

  async function flush(lines: string): Promise<void> {
    if (!isTailClean) await truncateTail()
    isTailClean = false
    await file.appendFile(lines)
    await file.datasync()
    isTailClean = true
    durableLength += Buffer.byteLength(lines)
  }

  async function truncateTail(): Promise<void> {
    await file.truncate(durableLength)
    isTailClean = true
  }

  /**
   * Writes a snapshot and then empties the log. If the snapshot cannot be written, the log keeps its
   * entries.
   */
  async function compact(): Promise<void> {
    if (!isTailClean) await truncateTail()
    const content = JSON.stringify({ format: FORMAT, n: number, state: state() })
    await writeFileAtomic(snapshotPath, `${content}\n`)
    await file.truncate(0)
    // `durableLength` is set to 0 before the flush, because the flush may fail. With the old value, a later truncation
    // to that length would extend the file with zeros.
    durableLength = 0
    await file.sync()
  }

  try {
    await file.truncate(length)
    await file.sync()
    // The snapshot is written at the first start, because operators expect its file, and because a folder that
    // cannot be written must make the start fail.
    if (!existsSync(snapshotPath)) await compact()
  } catch (error) {
    await file.close()
    throw error
  }

  return {
    append(entry) {
      number += 1
      const text = JSON.stringify({ n: number, entry })
      return new Promise<void>((resolve, reject) => {
        pending.push({ line: `${checksum(text)} ${text}\n`, resolve, reject })
        writing ??= write()
      })
    },
    compact: () =>
      new Promise<void>((resolve, reject) => {
        compactions.push({ resolve, reject })
        writing ??= write()
      }),
    async close() {
      while (writing !== null) await writing
      await compact().catch(() => {})
      await file.close()
    },
  }
}
