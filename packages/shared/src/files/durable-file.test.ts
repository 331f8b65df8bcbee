import { chmod, mkdir, mkdtemp, rm, stat, writeFile, readdir, readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type StartedProcess, startProcess } from '../../test-support/start-process.ts'
import { lockFolder, writeFileAtomic } from './durable-file.ts'

let folder: string
let file: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'durable-'))
  file = join(folder, 'store')
})
afterEach(() => rm(folder, { recursive: true }))

const takenAndFreed = async (): Promise<void> => (await lockFolder(folder, file))()
const REFUSED = { name: 'StartupError', message: expect.stringContaining('in use by another') }

/** Starts an OS process that tries to acquire the lock, and returns the first line of its output as `says`. */
async function another({ isNobody = false } = {}): Promise<
  StartedProcess & { readonly says: string }
> {
  const module = JSON.stringify(new URL('durable-file.ts', import.meta.url).href)
  const program = `
    import { lockFolder } from ${module}
    const [folder, file, isNobody] = process.argv.slice(1)
    if (isNobody === 'true') process.seteuid?.(65534)
    globalThis.unlock = await lockFolder(folder, file).catch((error) => error.name)
    console.log(typeof unlock === 'string' ? unlock : 'locked')
    setInterval(() => {}, 1_000)`
  const started = startProcess([
    '--input-type=module',
    '--eval',
    program,
    '--',
    folder,
    file,
    String(isNobody),
  ])
  const [says] = await started.waitForOutput(/^(?:locked|StartupError)$/m)
  return { ...started, says }
}

describe('the lock of a data folder', () => {
  it('a locked data folder cannot be locked again by any process, including the owner of the lock, until the lock is released', async () => {
    const unlock = await lockFolder(folder, file)
    await expect(lockFolder(folder, file)).rejects.toMatchObject(REFUSED)
    {
      await using other = await another()
      expect(other.says).toBe('StartupError')
    }
    unlock()
    await expect(takenAndFreed()).resolves.toBeUndefined()
  })

  it('the lock of a data folder is released as soon as the OS process that holds it is killed', async () => {
    {
      await using other = await another()
      expect(other.says).toBe('locked')
    }
    await expect(takenAndFreed()).resolves.toBeUndefined()
  })

  it('a suspended OS process keeps its lock of a data folder', async () => {
    await using other = await another()
    other.signal('SIGSTOP')
    await expect(takenAndFreed()).rejects.toMatchObject(REFUSED)
  })

  it('only one of several concurrent OS processes gets the lock of a data folder whose previous owner was killed', async () => {
    for (let round = 1; round <= 2; round += 1) {
      await using all = new AsyncDisposableStack()
      const others = await Promise.all(Array.from({ length: 6 }, () => another()))
      for (const other of others) all.use(other)
      expect(others.filter(({ says }) => says === 'locked')).toHaveLength(1)
    }
  })

  it('lockFolder reports the reason if the lock file cannot be opened', async () => {
    await mkdir(`${file}.lock.sqlite`)
    await expect(takenAndFreed()).rejects.toMatchObject({
      name: 'StartupError',
      message: expect.stringContaining(`${folder} cannot be used: ${file}.lock.sqlite: `),
    })
  })

  it('lockFolder reports the reason if the data folder is a file', async () => {
    await writeFile(file, '')
    await expect(lockFolder(file, join(file, 'store'))).rejects.toMatchObject({
      name: 'StartupError',
      message: expect.stringContaining(`${file} cannot be used: EEXIST`),
    })
  })

  it('only one of several concurrent attempts in one OS process gets the lock of a data folder', async () => {
    const all = await Promise.allSettled(Array.from({ length: 10 }, () => lockFolder(folder, file)))
    expect(all.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    await using other = await another()
    expect(other.says).toBe('StartupError')
    expect((await stat(`${file}.lock.sqlite`)).size).toBe(0)
  })

  it('lockFolder fails if the lock file is read-only', async () => {
    await takenAndFreed()
    await chmod(`${file}.lock.sqlite`, 0o444)
    await chmod(folder, 0o777)
    await using other = await another({ isNobody: process.getuid?.() === 0 })
    expect(other.says).toBe('StartupError')
  })
})

describe('writeFileAtomic()', () => {
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
