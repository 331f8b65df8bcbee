import { link, lstat, open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { ExportDocument } from '@integration-host/shared/contracts/custody'
import { syncFolder } from '@integration-host/shared/files/durable-file'
import { reasonOf } from '@integration-host/shared/observability/health'
import { CommandFailed, exitCodes } from './exit-code.ts'

/** A new file, which is written to `<path>.part` and moved to `<path>` when it is complete. */
interface NewFile<Line> {
  append(line: Line): Promise<void>
  /** Moves the file to its final name. */
  finish(): Promise<void>
  /** Deletes the unfinished file. */
  discard(): Promise<void>
}

/**
 * Creates a file of exported credentials with one document per line and mode 0600.
 *
 * The exporting installation no longer uses the exported credentials, so this file may be the only usable copy. Each
 * document is therefore flushed to disk before the next document is requested.
 *
 * @throws {CommandFailed} `<path>` or `<path>.part` exists, or the folder cannot be written.
 */
export async function createExportFile(path: string): Promise<NewFile<ExportDocument>> {
  const { part, file, discard } = await openPart(path, 'its received credentials are in it')
  let bytes = 0
  return {
    async append(document) {
      const line = Buffer.from(`${JSON.stringify(document)}\n`)
      try {
        await file.appendFile(line)
        await file.sync()
      } catch (error) {
        // The file is truncated after the last complete line, because an incomplete line would make the file unusable.
        await file.truncate(bytes)
        throw unwritable(path, error)
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
    discard,
  }
}

const CHUNK_CHARACTERS = 262_144

/**
 * Creates a file that receives its lines in chunks and is flushed once, at the end.
 *
 * @throws {CommandFailed} `<path>` or `<path>.part` exists, or the folder cannot be written.
 */
export async function createLinesFile(path: string): Promise<NewFile<string>> {
  const { part, file, discard } = await openPart(path, 'it has a part of the runs')
  let chunk = ''
  async function flush(): Promise<void> {
    const text = chunk
    chunk = ''
    await file.appendFile(text)
  }
  /** Runs `work`. If `work` fails, throws a {@link CommandFailed} that names the file and the reason. */
  const writing = (work: () => Promise<void>): Promise<void> =>
    work().catch((error: unknown) => {
      throw unwritable(path, error)
    })
  return {
    async append(line) {
      chunk += `${line}\n`
      if (chunk.length >= CHUNK_CHARACTERS) await writing(flush)
    },
    finish: () =>
      writing(async () => {
        await flush()
        await file.sync()
        await file.close()
        await place(part, path)
      }),
    discard,
  }
}

/**
 * Creates `<path>.part`, which only its owner can read.
 *
 * @param left a part of the error message. It describes the content of a `<path>.part` that a killed export has left
 * behind.
 * @throws {CommandFailed} `<path>` or `<path>.part` exists, or the folder cannot be written.
 */
async function openPart(path: string, left: string) {
  if (await exists(path))
    throw new CommandFailed(exitCodes.failed, `${path} exists and is never overwritten.`)
  const part = `${path}.part`
  try {
    const file = await open(part, 'wx', 0o600)
    const discard = async (): Promise<void> => {
      await file.close()
      await rm(part, { force: true })
    }
    return { part, file, discard }
  } catch (error) {
    if (reasonOf(error) !== 'EEXIST') throw unwritable(path, error)
    throw new CommandFailed(
      exitCodes.failed,
      `${part} exists: an export to this file is running, or was killed and ${left}. Rename or remove it first.`,
    )
  }
}

const unwritable = (path: string, error: unknown): CommandFailed =>
  new CommandFailed(exitCodes.failed, `${path} cannot be written (${reasonOf(error)}).`)

/**
 * Moves a file by a hard link and the removal of the old name. Linking fails if the target exists, whereas a rename
 * would replace the target.
 */
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
