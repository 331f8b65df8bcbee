import { link, lstat, open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { ExportDocument } from '@integration-host/shared/contracts/custody'
import { syncFolder } from '@integration-host/shared/files/write-file-atomic'
import { reasonOf } from '@integration-host/shared/observability/health'
import { CommandFailed, exitCodes } from './exit-code.ts'

/**
 * A file of exported credentials with one document per line and mode 0600. Documents are written to `<path>.part`,
 * which is moved to `<path>` when the export is complete.
 *
 * After an export the exporting installation no longer uses the credentials, so this file may be the only usable copy.
 * Each document is therefore flushed to disk before the next document is requested.
 */
export interface ExportFile {
  append(document: ExportDocument): Promise<void>
  /** Moves the file to its final name. */
  finish(): Promise<void>
  /** Deletes the unfinished file. */
  discard(): Promise<void>
}

/** Creates `<path>.part`. @throws {CommandFailed} one of the files exists, or the folder cannot be written. */
export async function createExportFile(path: string): Promise<ExportFile> {
  if (await exists(path)) throw taken(path)
  const part = `${path}.part`
  const file = await open(part, 'wx', 0o600).catch((error: unknown) => {
    throw reasonOf(error) === 'EEXIST'
      ? new CommandFailed(
          exitCodes.failed,
          `${part} exists: an export to this file is running, or was killed and its received credentials are in it. Rename or remove it first.`,
        )
      : new CommandFailed(exitCodes.failed, `${path} cannot be written (${reasonOf(error)}).`)
  })
  let bytes = 0
  return {
    async append(document) {
      const line = Buffer.from(`${JSON.stringify(document)}\n`)
      try {
        await file.appendFile(line)
        await file.sync()
      } catch (error) {
        // The file is cut back to the last complete line, because an incomplete line would make it unusable.
        await file.truncate(bytes)
        throw new CommandFailed(exitCodes.failed, `${path} cannot be written (${reasonOf(error)}).`)
      }
      bytes += line.length
    },
    async finish() {
      await file.close()
      try {
        await place(part, path)
      } catch (error) {
        throw new CommandFailed(
          exitCodes.failed,
          `${part} has the credentials, but cannot be moved to ${path} (${reasonOf(error)}). Keep it.`,
        )
      }
    },
    async discard() {
      await file.close()
      await rm(part, { force: true })
    },
  }
}

/** A file of many lines, which is written in chunks and flushed once. `<path>.part` becomes `<path>` at the end. */
export interface LinesFile {
  append(line: string): Promise<void>
  /** Flushes the file and moves it to its final name. */
  finish(): Promise<void>
  /** Deletes the unfinished file. */
  discard(): Promise<void>
}

const CHUNK_CHARACTERS = 262_144

/** Creates `<path>.part`. @throws {CommandFailed} one of the files exists, or the folder cannot be written. */
export async function createLinesFile(path: string): Promise<LinesFile> {
  if (await exists(path)) throw taken(path)
  const part = `${path}.part`
  const unwritable = (error: unknown): CommandFailed =>
    new CommandFailed(exitCodes.failed, `${path} cannot be written (${reasonOf(error)}).`)
  const file = await open(part, 'wx', 0o600).catch((error: unknown) => {
    throw reasonOf(error) === 'EEXIST' ? taken(part) : unwritable(error)
  })
  let chunk = ''
  async function flush(): Promise<void> {
    const text = chunk
    chunk = ''
    await file.appendFile(text).catch((error: unknown) => {
      throw unwritable(error)
    })
  }
  return {
    async append(line) {
      chunk += `${line}\n`
      if (chunk.length >= CHUNK_CHARACTERS) await flush()
    },
    async finish() {
      await flush()
      await file.sync()
      await file.close()
      await place(part, path)
    },
    async discard() {
      await file.close()
      await rm(part, { force: true })
    },
  }
}

/** Moves a file by a hard link, which fails if the target exists; a rename would replace the target. */
async function place(part: string, path: string): Promise<void> {
  try {
    await link(part, path)
    await rm(part)
  } catch (error) {
    // Some file systems, such as FAT, do not support hard links.
    if (!['EPERM', 'ENOTSUP', 'ENOSYS'].includes(reasonOf(error)) || (await exists(path)))
      throw error
    await rename(part, path)
  }
  await syncFolder(dirname(path))
}

const exists = (path: string): Promise<boolean> =>
  lstat(path).then(
    () => true,
    () => false,
  )

const taken = (path: string): CommandFailed =>
  new CommandFailed(exitCodes.failed, `${path} exists and is never overwritten.`)
