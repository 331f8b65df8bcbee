import fs from 'node:fs'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { writeFiles } from './file-writer.ts'
import { createThreadedFiles } from './threaded-files.ts'

describe('writing a file through a writer thread', () => {
  let folder: string
  const files = createThreadedFiles()
  afterAll(() => files[Symbol.asyncDispose]())
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'threaded-files-'))
  })
  afterEach(() => rm(folder, { recursive: true }))

  it('after concurrent writes of one file, the file has the complete content of one of them, and no temporary file is left', async () => {
    const path = join(folder, 'a.csv')
    const contents = Array.from({ length: 20 }, (_, n) => String(n).repeat(100_000))
    await Promise.all(contents.map((content) => files.writeAtomic(path, content)))
    expect(contents).toContain(await readFile(path, 'utf8'))
    expect(await readdir(folder)).toEqual(['a.csv'])
  })

  it('the file writer creates a missing folder before it writes a file', async () => {
    const path = join(folder, 'some', 'where', 'a.csv')
    await Promise.all(['1', '2'].map((content) => files.writeAtomic(path, content)))
    expect(await readdir(join(folder, 'some', 'where'))).toEqual(['a.csv'])
  })

  it('the file writer flushes the parent of every folder that it creates, so that the folder survives a power failure', async () => {
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

  it('if the file writer cannot flush the parent of a new folder, it removes the new folder', async () => {
    vi.spyOn(fs, 'fsyncSync').mockImplementationOnce(() => {
      throw Object.assign(new Error('EIO'), { code: 'EIO' })
    })
    const path = join(folder, 'some', 'where', 'a.csv')
    const file = { path, temporary: `${path}.01234567.tmp`, content: '' }
    expect(await writeFiles([file])).toEqual([{ code: 'EIO', message: 'EIO' }])
    vi.restoreAllMocks()
    expect(await readdir(folder)).toEqual([])
  })

  it('the file writer leaves no temporary file behind if a write fails', async () => {
    await writeFile(join(folder, 'file'), '')
    await expect(files.writeAtomic(join(folder, 'file', 'a.csv'), '')).rejects.toMatchObject({
      code: 'ENOTDIR',
    })
    expect(await readdir(folder)).toEqual(['file'])
  })

  it('the file writer writes a file while the write of another file hangs', async () => {
    const given = vi.spyOn(Worker.prototype, 'postMessage').mockImplementationOnce(() => {})
    const hanging = files.writeAtomic(join(folder, 'a.csv'), 'never')
    await eventually(() => expect(given).toHaveBeenCalledOnce())
    await files.writeAtomic(join(folder, 'b.csv'), '1')
    expect(await readdir(folder)).toEqual(['b.csv'])
    await (given.mock.contexts[0] as Worker).terminate()
    await expect(hanging).rejects.toMatchObject({ code: 'EIO' })
  })

  it('a write starts a new writer thread if the previous writer thread has exited', async () => {
    const path = join(folder, 'a.csv')
    await files.writeAtomic(path, '1')
    vi.spyOn(Worker.prototype, 'postMessage').mockImplementationOnce(function (this: Worker) {
      void this.terminate()
    })
    await expect(files.writeAtomic(path, 'never')).rejects.toMatchObject({ code: 'EIO' })
    await files.writeAtomic(path, '2')
    expect(await readFile(path, 'utf8')).toBe('2')
  })

  /** Writes three files on a disk that is full while the second file is written. */
  async function expectSecondToFail(): Promise<void> {
    const file = (name: string) => ({
      path: join(folder, name),
      temporary: join(folder, `${name}.01234567.tmp`),
      content: name,
    })
    await writeFile(join(folder, 'b.csv'), 'previous content')
    const results = await writeFiles(['a.csv', 'b.csv', 'c.csv'].map(file))
    vi.restoreAllMocks()
    expect(results).toEqual([null, { code: 'ENOSPC', message: 'ENOSPC: no space left' }, null])
    expect((await readdir(folder)).toSorted()).toEqual(['a.csv', 'b.csv', 'c.csv'])
    expect(await readFile(join(folder, 'b.csv'), 'utf8')).toBe('previous content')
  }
  const full = Object.assign(new Error('ENOSPC: no space left'), { code: 'ENOSPC' })

  it.each(['openSync', 'writeFileSync', 'fsyncSync', 'closeSync', 'renameSync'] as const)(
    'if the disk is full when %s is called for one file, the file writer still writes the other files of the batch',
    async (call) => {
      vi.spyOn(performance, 'now').mockReturnValue(0) // the clock stops, so that no flush counts as slow
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

  it('if one of several concurrent flushes fails, the file writer still writes the other files of the batch', async () => {
    let clock = 0
    vi.spyOn(performance, 'now').mockImplementation(() => (clock += 1))
    vi.spyOn(fs, 'fsync').mockImplementationOnce((_, done) => done(full))
    await expectSecondToFail()
  })

  it('if the flush of the folder after a rename fails, the file writer reports the renamed file as failed', async () => {
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

  it('removeTemporaryFiles(path) removes the temporary files that killed writers of this path left behind, and no other file', async () => {
    const others = ['a.csv', 'a.csv.tmp', 'a.csv.bak', 'ba.csv.01234567.tmp', 'b.csv.01234567.tmp']
    for (const name of [...others, 'a.csv.01234567.tmp', 'a.csv.89abcdef.tmp'])
      await writeFile(join(folder, name), '')
    await files.removeTemporaryFiles(join(folder, 'a.csv'))
    expect((await readdir(folder)).toSorted()).toEqual(others.toSorted())
  })

  it('removeTemporaryFiles() does nothing if the folder does not exist yet', async () => {
    await files.removeTemporaryFiles(join(folder, 'not', 'yet', 'a.csv'))
    expect(await readdir(folder)).toEqual([])
  })
})
