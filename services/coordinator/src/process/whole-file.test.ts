import fs from 'node:fs'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { writeFiles } from './file-writer.ts'
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

  it('has its folder, and those that lead to it, flushed into theirs', async () => {
    const [open, flush] = [fs.openSync, fs.fsyncSync]
    const names = new Map<number, string>()
    const flushed: string[] = []
    vi.spyOn(fs, 'openSync').mockImplementation((...args) => {
      const descriptor = open(...args)
      names.set(descriptor, String(args[0]))
      return descriptor
    })
    vi.spyOn(fs, 'fsyncSync').mockImplementation((descriptor) => {
      flushed.push(names.get(descriptor) ?? '')
      flush(descriptor)
    })
    const path = join(folder, 'some', 'where', 'a.csv')
    const temporary = `${path}.01234567.tmp`
    expect(await writeFiles([{ path, temporary, content: '' }])).toEqual([null])
    expect(flushed.toSorted()).toEqual(
      [folder, join(folder, 'some'), dirname(path), temporary].toSorted(),
    )
    vi.restoreAllMocks()
  })

  it('is not there, nor its folder, when that could not be flushed', async () => {
    vi.spyOn(fs, 'fsyncSync').mockImplementationOnce(() => {
      throw Object.assign(new Error('EIO'), { code: 'EIO' })
    })
    const path = join(folder, 'some', 'where', 'a.csv')
    const file = { path, temporary: `${path}.01234567.tmp`, content: '' }
    expect(await writeFiles([file])).toEqual([{ code: 'EIO', message: 'EIO' }])
    vi.restoreAllMocks()
    expect(await readdir(folder)).toEqual([])
  })

  it('leaves nothing when it cannot be written', async () => {
    await writeFile(join(folder, 'file'), '')
    await expect(writeWholeFile(join(folder, 'file', 'a.csv'), '')).rejects.toMatchObject({
      code: 'ENOTDIR',
    })
    expect(await readdir(folder)).toEqual(['file'])
  })

  it('does not wait for a folder that hangs', async () => {
    const given = vi.spyOn(Worker.prototype, 'postMessage').mockImplementationOnce(() => {})
    const hanging = writeWholeFile(join(folder, 'a.csv'), 'never')
    await eventually(() => expect(given).toHaveBeenCalledOnce())
    await writeWholeFile(join(folder, 'b.csv'), '1')
    expect(await readdir(folder)).toEqual(['b.csv'])
    await (given.mock.contexts[0] as Worker).terminate()
    await expect(hanging).rejects.toMatchObject({ code: 'EIO' })
  })

  it('is written again after the thread that writes has died', async () => {
    const path = join(folder, 'a.csv')
    await writeWholeFile(path, '1')
    vi.spyOn(Worker.prototype, 'postMessage').mockImplementationOnce(function (this: Worker) {
      void this.terminate()
    })
    await expect(writeWholeFile(path, 'never')).rejects.toMatchObject({ code: 'EIO' })
    await writeWholeFile(path, '2')
    expect(await readFile(path, 'utf8')).toBe('2')
  })

  /** Writes three files, of which the second meets a full disk. */
  async function expectSecondToFail(): Promise<void> {
    const file = (name: string) => ({
      path: join(folder, name),
      temporary: join(folder, `${name}.01234567.tmp`),
      content: name,
    })
    await writeFile(join(folder, 'b.csv'), 'as it was')
    const results = await writeFiles(['a.csv', 'b.csv', 'c.csv'].map(file))
    vi.restoreAllMocks()
    expect(results).toEqual([null, { code: 'ENOSPC', message: 'ENOSPC: no space left' }, null])
    expect((await readdir(folder)).toSorted()).toEqual(['a.csv', 'b.csv', 'c.csv'])
    expect(await readFile(join(folder, 'b.csv'), 'utf8')).toBe('as it was')
  }
  const full = Object.assign(new Error('ENOSPC: no space left'), { code: 'ENOSPC' })

  it.each(['openSync', 'writeFileSync', 'fsyncSync', 'closeSync', 'renameSync'] as const)(
    'fails alone when the disk is full at %s, and leaves nothing',
    async (call) => {
      vi.spyOn(performance, 'now').mockReturnValue(0) // flushes that take no time
      const real = fs[call] as (...args: unknown[]) => unknown
      let calls = 0
      vi.spyOn(fs, call).mockImplementation((...args: unknown[]) => {
        calls += 1
        if (calls === 2) throw full
        return real(...args) as never
      })
      await expectSecondToFail()
    },
  )

  it('fails alone as well when files are flushed side by side', async () => {
    let clock = 0
    vi.spyOn(performance, 'now').mockImplementation(() => (clock += 1))
    vi.spyOn(fs, 'fsync').mockImplementationOnce((_, done) => done(full))
    await expectSecondToFail()
  })

  it('is not said to be there when its folder could not be flushed', async () => {
    const real = fs.fsyncSync
    let calls = 0
    const spy = vi.spyOn(fs, 'fsyncSync').mockImplementation((descriptor) => {
      calls += 1
      if (calls === 2) throw Object.assign(new Error('EIO'), { code: 'EIO' })
      real(descriptor)
    })
    const path = join(folder, 'a.csv')
    try {
      const file = { path, temporary: `${path}.01234567.tmp`, content: '' }
      expect(await writeFiles([file])).toEqual([{ code: 'EIO', message: 'EIO' }])
    } finally {
      spy.mockRestore()
    }
  })

  it('is rid of what killed writers of it left, and of nothing else', async () => {
    const others = ['a.csv', 'a.csv.tmp', 'a.csv.bak', 'ba.csv.01234567.tmp', 'b.csv.01234567.tmp']
    for (const name of [...others, 'a.csv.01234567.tmp', 'a.csv.89abcdef.tmp'])
      await writeFile(join(folder, name), '')
    await removeStrays(join(folder, 'a.csv'))
    expect((await readdir(folder)).toSorted()).toEqual(others.toSorted())
  })

  it('has nothing to be rid of when its writers were killed before they made its folder', async () => {
    await removeStrays(join(folder, 'not', 'yet', 'a.csv'))
    expect(await readdir(folder)).toEqual([])
  })
})
