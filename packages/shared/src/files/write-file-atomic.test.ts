import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { writeFileAtomic } from './write-file-atomic.ts'

describe('writeFileAtomic()', () => {
  let folder: string
  beforeEach(async () => void (folder = await mkdtemp(join(tmpdir(), 'atomic-'))))
  afterEach(() => rm(folder, { recursive: true }))

  it('writeFileAtomic creates a file that only its owner can read', async () => {
    const path = join(folder, 'secrets')
    await writeFileAtomic(path, 'content')
    expect(await readFile(path, 'utf8')).toBe('content')
    expect((await stat(path)).mode & 0o777).toBe(0o600)
    expect(await readdir(folder)).toEqual(['secrets'])
  })

  it('writeFileAtomic replaces the content and the permissions of an existing file', async () => {
    const path = join(folder, 'report')
    await writeFile(path, 'a much longer previous content', { mode: 0o600 })
    await writeFileAtomic(path, Buffer.from('new'), { mode: 0o644 })
    expect(await readFile(path, 'utf8')).toBe('new')
    expect((await stat(path)).mode & 0o777).toBe(0o644)
  })

  it('writeFileAtomic corrects the permissions of a temporary file that a crash left behind', async () => {
    const path = join(folder, 'secrets')
    await writeFile(`${path}.tmp`, 'half')
    await chmod(`${path}.tmp`, 0o666)
    await writeFileAtomic(path, 'content')
    expect((await stat(path)).mode & 0o777).toBe(0o600)
  })

  it('writeFileAtomic removes the temporary file and keeps the existing content when the rename fails', async () => {
    const path = join(folder, 'taken')
    await mkdir(join(path, 'child'), { recursive: true })
    await expect(writeFileAtomic(path, 'content')).rejects.toThrow(/EISDIR|ENOTEMPTY|EEXIST/)
    expect(await readdir(folder)).toEqual(['taken'])
  })
})
