import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createFileRemover } from './remove-files.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'remove-files-'))
  await mkdir(join(folder, 'data', 'csv'), { recursive: true })
  for (const name of ['data/csv/a', 'data/csv/b', 'outside'])
    await writeFile(join(folder, name), name)
})
afterEach(() => rm(folder, { recursive: true }))

describe('the removal of files', () => {
  const remove = (...names: string[]) =>
    createFileRemover(join(folder, 'data'))(names.map((name) => join(folder, 'data', name)))

  const removed = (value: boolean) => ({ status: 'fulfilled', value })
  const failed = (reason: unknown) => ({ status: 'rejected', reason })

  it('the removal of files deletes existing files and ignores missing files', async () => {
    expect(await remove('csv/a', 'csv/never', 'never/a', 'csv/b/c')).toEqual(
      [true, false, false, false].map(removed),
    )
    expect(await readdir(join(folder, 'data', 'csv'))).toEqual(['b'])
  })

  it('the removal of files rejects a path outside the data folder', async () => {
    for (const path of ['../outside', '../data-2/a', '.'])
      expect(await remove(path)).toEqual([
        failed(expect.objectContaining({ message: expect.stringContaining('only files in') })),
      ])
    expect(await readdir(folder)).toEqual(['data', 'outside'])
  })

  it('the removal of files fails for a path that is a folder, and deletes the other files', async () => {
    const isFolder = expect.objectContaining({ code: expect.stringMatching(/EISDIR|EPERM/) })
    expect(await remove('csv/a', 'csv', 'csv/b')).toEqual([
      removed(true),
      failed(isFolder),
      removed(true),
    ])
    expect(await readdir(join(folder, 'data', 'csv'))).toEqual([])
  })
})
