import { link, lstat, open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { ExportDocument } from '@integration-host/shared/contracts/custody'
import { syncFolder } from '@integration-host/shared/files/write-file-atomic'
import { reasonOf } from '@integration-host/shared/observability/health'
import { CommandFailed, exitCodes } from './exit-code.ts'

/**
 * A file of exported credentials, one document on each line, for its owner's eyes only. It is written beside its
 * place and moved there whole. What it holds may exist nowhere else in usable form, so each document is on
 * the disk before the next is asked for.
 */
export interface ExportFile {
  append(document: ExportDocument): Promise<void>
  /** Moves it to its place. */
  finish(): Promise<void>
  /** Takes it away again. */
  discard(): Promise<void>
}

/** @throws {CommandFailed} there is a file already, or none can be written there. */
export async function createExportFile(path: string): Promise<ExportFile> {
  if (await exists(path)) throw taken(path)
  const part = `${path}.part`
  const file = await open(part, 'wx', 0o600).catch((error: unknown) => {
    throw reasonOf(error) === 'EEXIST'
      ? new CommandFailed(
          exitCodes.failed,
          `${part} is there: an export to this file is under way, or was killed and left in it what it had received. Rename or remove it first.`,
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
        // Half a line would spoil the ones before it.
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

/** Unlike a rename, a link never takes the place of a file that came in between. */
async function place(part: string, path: string): Promise<void> {
  try {
    await link(part, path)
    await rm(part)
  } catch (error) {
    // Some file systems, such as those of memory sticks, have no links.
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
  new CommandFailed(exitCodes.failed, `${path} is there already and is never overwritten.`)
