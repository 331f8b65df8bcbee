import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { removeStrays, writeWholeFile } from './whole-file.ts'

describe('a file that is written whole', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'whole-file-'))
  })
  afterEach(() => rm(folder, { recursive: true }))

  it('has the content of one of its writers, and none of them leaves anything else', async () => {
    const path = join(folder, 'a.csv')
    const contents = Array.from({ length: 20 }, (_, n) => String(n).repeat(100_000))
    await Promise.all(contents.map((content) => writeWholeFile(path, content)))
    expect(contents).toContain(await readFile(path, 'utf8'))
    expect(await readdir(folder)).toEqual(['a.csv'])
  })

  it('comes with its folder', async () => {
    const path = join(folder, 'some', 'where', 'a.csv')
    await Promise.all(['1', '2'].map((content) => writeWholeFile(path, content)))
    expect(await readdir(join(folder, 'some', 'where'))).toEqual(['a.csv'])
  })

  it('leaves nothing when it cannot be written', async () => {
    await writeFile(join(folder, 'file'), '')
    await expect(writeWholeFile(join(folder, 'file', 'a.csv'), '')).rejects.toMatchObject({
      code: 'ENOTDIR',
    })
    expect(await readdir(folder)).toEqual(['file'])
  })

  it('is rid of what killed writers of it left, and of nothing else', async () => {
    const others = ['a.csv', 'a.csv.tmp', 'a.csv.bak', 'ba.csv.01234567.tmp', 'b.csv.01234567.tmp']
    for (const name of [...others, 'a.csv.01234567.tmp', 'a.csv.89abcdef.tmp'])
      await writeFile(join(folder, name), '')
    await removeStrays(join(folder, 'a.csv'))
    expect((await readdir(folder)).toSorted()).toEqual(others.toSorted())
  })
})
