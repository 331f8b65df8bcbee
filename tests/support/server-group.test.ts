import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { ServerGroup } from './server-group.ts'

// Ends on its own stop signal alone, and takes a moment for it.
const server = `
  const { writeFileSync } = require('node:fs')
  process.on('SIGTERM', () => {})
  process.on('SIGINT', () => setTimeout(() => process.exit(), 150))
  setInterval(() => {}, 1000)
  writeFileSync(process.argv[1], String(process.pid))
`

let owner: ChildProcess | undefined

afterEach(() => owner?.kill('SIGKILL'))

describe('the servers of a test run', () => {
  it('end with stop, and their folder with them', async () => {
    const group = new ServerGroup()
    const pidFile = join(group.folder, 'pid')
    startIn(group, pidFile)
    const pid = await pidIn(pidFile)
    await group.stop()
    expect(isRunning(pid)).toBe(false)
    expect(existsSync(group.folder)).toBe(false)
  })

  it('end when the run is killed and can do nothing more', async () => {
    const program = `
      import { ServerGroup } from ${JSON.stringify(join(import.meta.dirname, 'server-group.ts'))}
      const group = new ServerGroup()
      console.log(group.folder)
      const args = ['-e', ${JSON.stringify(server)}, group.folder + '/pid']
      group.start({ program: process.execPath, args, logFile: group.folder + '/log', stopSignal: 'INT' })
      setInterval(() => {}, 1000)`
    owner = spawn(process.execPath, ['--input-type=module-typescript', '--eval', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    if (owner.stdout === null) throw new Error('no output to read')
    const [output] = (await once(owner.stdout, 'data')) as [Buffer]
    const folder = output.toString().trim()
    const pid = await pidIn(join(folder, 'pid'))

    owner.kill('SIGKILL')
    await until(() => !isRunning(pid) && !existsSync(folder))
  })

  it('tell with the end of their log that they stopped', async () => {
    const group = new ServerGroup()
    try {
      const failing = group.start({
        program: process.execPath,
        args: ['-e', 'console.error("port 1 is taken"); process.exit(3)'],
        logFile: join(group.folder, 'log'),
        stopSignal: 'TERM',
      })
      const failure = (): Promise<string> =>
        failing.assertRunning().then(
          () => '',
          (error: unknown) => String(error),
        )
      await until(async () => (await failure()).includes('port 1 is taken'))
    } finally {
      await group.stop()
    }
  })

  it('tell that their program is not there', async () => {
    const group = new ServerGroup()
    try {
      const missing = group.start({
        program: join(group.folder, 'nonesuch'),
        args: [],
        logFile: join(group.folder, 'log'),
        stopSignal: 'TERM',
      })
      await eventually(() => expect(missing.assertRunning()).rejects.toThrow('ENOENT'))
    } finally {
      await group.stop()
    }
  })
})

function startIn(group: ServerGroup, pidFile: string): void {
  group.start({
    program: process.execPath,
    args: ['-e', server, pidFile],
    logFile: join(group.folder, 'log'),
    stopSignal: 'INT',
  })
}

async function pidIn(file: string): Promise<number> {
  const read = (): number => (existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0)
  return vi.waitUntil(read, { timeout: 10_000 })
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
