/**
 * A log of changes beside a snapshot: what `append` resolved for is on the disk.
 *
 * J1  A line is `<crc32> <JSON>`. Only the last line can be torn, and it was acknowledged to nobody: opening
 *     cuts it off. A bad line before the end is damage, and the start is refused.
 * J2  Entries carry a number; a snapshot says up to which number it holds them. A crash between writing a
 *     snapshot and emptying the log repeats nothing.
 * J3  Appends are flushed in groups: what arrives while a flush is on its way goes with the next.
 * J4  A group that cannot be written is cut off again and reported to everyone in it and behind it.
 */
import { existsSync, readFileSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { removeStrays, writeWholeFile } from '../../process/whole-file.ts'

export interface Journal {
  append(entry: unknown): Promise<void>
  close(): Promise<void>
}

/** What the log needs of its file. */
export interface JournalFile extends Pick<FileHandle, 'datasync' | 'sync' | 'truncate' | 'close'> {
  appendFile(lines: string): Promise<void>
}

export interface JournalOptions {
  readonly snapshotPath: string
  readonly journalPath: string
  /** Opens the log for appending, made when it is not there; the disk's own unless given. */
  readonly openFile?: ((path: string) => Promise<JournalFile>) | undefined
  /** The whole state, as the snapshot keeps it. */
  readonly state: () => unknown
  /** Called once for all appends that failed together, before they are rejected. */
  readonly onFailure: () => void
}

interface Loaded {
  readonly state: unknown
  readonly entries: readonly unknown[]
  readonly lastNumber: number
  /** Bytes of the log that are whole. */
  readonly length: number
}

const FORMAT = 'integration-host transactions 1'
const COMPACT_BYTES = 8_388_608

/**
 * Reads snapshot and log; null state when there is none.
 *
 * @throws {StartupError} naming the file that is damaged. Nothing was changed.
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
      // J1: a bad line with nothing but whole lines' absence after it is a torn tail.
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
  try {
    const { format, n, state } = JSON.parse(text) as { format: unknown; n: unknown; state: unknown }
    if (format === FORMAT && typeof n === 'number') return { state, lastNumber: n }
  } catch {
    // told below
  }
  throw damaged(path)
}

function readIfThere(path: string): Buffer | undefined {
  try {
    return readFileSync(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** The refusal for a file that cannot be trusted. */
export const damaged = (path: string): StartupError =>
  new StartupError(
    `${path} is damaged and was left as it is: restore it from a backup, or move it away to start empty`,
  )

/** Opens the log behind what `readJournal` found, its torn tail cut off. */
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
  let number = lastNumber
  let durableLength = length
  let isTailClean = true
  let writing: Promise<void> | null = null

  async function write(): Promise<void> {
    while (pending.length > 0) {
      const group = pending
      pending = []
      try {
        await flush(group.map(({ line }) => line).join(''))
      } catch (error) {
        // J4: whoever came later built on a state that is not on the disk.
        const behind = pending
        pending = []
        onFailure()
        for (const { reject } of [...group, ...behind]) reject(error)
        continue
      }
      for (const { resolve } of group) resolve()
      if (durableLength > COMPACT_BYTES) await compact().catch(() => {})
    }
  }

  async function flush(lines: string): Promise<void> {
    if (!isTailClean) await cutTail()
    isTailClean = false
    await file.appendFile(lines)
    await file.datasync()
    isTailClean = true
    durableLength += Buffer.byteLength(lines)
  }

  async function cutTail(): Promise<void> {
    await file.truncate(durableLength)
    isTailClean = true
  }

  /** J2. A snapshot that cannot be written costs nothing but the log's length. */
  async function compact(): Promise<void> {
    if (!isTailClean) await cutTail()
    const content = JSON.stringify({ format: FORMAT, n: number, state: state() })
    await writeWholeFile(snapshotPath, `${content}\n`)
    await file.truncate(0)
    // Even if the flush fails: cutting a tail at the old length would fill the file up with zeros.
    durableLength = 0
    await file.sync()
  }

  try {
    await file.truncate(length)
    await file.sync()
    // Killed in the middle of a snapshot, and nobody else writes here.
    await removeStrays(snapshotPath)
    // The file people look for is there from the start; one that cannot be written refuses the start.
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
        writing ??= write().finally(() => (writing = null))
      })
    },
    async close() {
      while (writing !== null) await writing
      await compact().catch(() => {})
      await file.close()
    },
  }
}
