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

describe('the remover of files', () => {
  const remove = (...names: string[]) =>
    createFileRemover(join(folder, 'data'))(names.map((name) => join(folder, 'data', name)))

  it('existing files are removed, and files that do not exist are ignored', async () => {
    expect(await remove('csv/a', 'csv/never', 'never/a', 'csv/b/c')).toBe(1)
    expect(await readdir(join(folder, 'data', 'csv'))).toEqual(['b'])
  })

  it('a path outside the data folder is rejected before anything is removed', async () => {
    for (const path of ['../outside', '../data-2/a', '.'])
      await expect(remove('csv/a', path)).rejects.toThrow('only files in DATA_DIR')
    expect(await readdir(join(folder, 'data', 'csv'))).toEqual(['a', 'b'])
    expect(await readdir(folder)).toContain('outside')
  })

  it('what is not a file is rejected', async () => {
    await expect(remove('csv')).rejects.toMatchObject({
      code: expect.stringMatching(/EISDIR|EPERM/),
    })
  })
})
