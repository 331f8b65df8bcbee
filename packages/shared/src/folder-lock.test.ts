import { spawnSync } from 'node:child_process'
import { mkdir, mkdtemp, rm, utimes, writeFile } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { lockFolder } from './folder-lock.ts'

let folder: string
let file: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'lock-'))
  file = join(folder, 'store')
})
afterEach(() => rm(folder, { recursive: true }))

/** The lock as a process leaves it that was killed, and who signed it. */
async function leftBehind(holder: string | null, ageMs = 0): Promise<void> {
  await mkdir(`${file}.lock`)
  const at = new Date(Date.now() - ageMs)
  await utimes(`${file}.lock`, at, at)
  if (holder !== null) await writeFile(`${file}.lock.json`, holder)
}

const takenAndFreed = async (): Promise<void> => (await lockFolder(folder, file, () => {}))()

const goneProcess = (): number => spawnSync(process.execPath, ['-e', '']).pid

describe('the lock of a data folder', () => {
  it('is refused while its process lives, and free when that has let go', async () => {
    const unlock = await lockFolder(folder, file, () => {})
    await expect(lockFolder(folder, file, () => {})).rejects.toThrow('in use by another process')
    await unlock()
    await expect(takenAndFreed()).resolves.toBeUndefined()
  })

  it('is taken at once from a process that is gone', async () => {
    await leftBehind(JSON.stringify({ pid: goneProcess(), host: hostname() }))
    await expect(takenAndFreed()).resolves.toBeUndefined()
  })

  it('is not taken from a process of another machine', async () => {
    await leftBehind(JSON.stringify({ pid: goneProcess(), host: 'elsewhere' }))
    await expect(lockFolder(folder, file, () => {})).rejects.toThrow('in use by another process')
  })

  it.each([
    ['before it could sign', null],
    ['while it signed', '{"pid":'],
    ['and somebody emptied its signature', 'null'],
  ])('is waited for when its process was killed %s', async (_, holder) => {
    await leftBehind(holder, 9_500)
    await expect(takenAndFreed()).resolves.toBeUndefined()
  })
})
