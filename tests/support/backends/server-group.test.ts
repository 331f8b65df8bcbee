import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { ServerGroup } from './server-group.ts'

// A program that exits 150 ms after its stop signal SIGINT and ignores other signals.
const server = `
  const { writeFileSync } = require('node:fs')
  process.on('SIGTERM', () => {})
  process.on('SIGINT', () => setTimeout(() => process.exit(), 150))
  setInterval(() => {}, 1000)
  writeFileSync(process.argv[1], String(process.pid))
`

describe('the servers of a test run', () => {
  it('stopping a server group ends its servers and removes the folder of the group', async () => {
    const group = new ServerGroup()
    const pidFile = join(group.folder, 'pid')
    startIn(group, pidFile)
    const pid = await pidIn(pidFile)
    await group.stop()
    expect(isRunning(pid)).toBe(false)
    expect(existsSync(group.folder)).toBe(false)
  })

  it('the servers of a group end when the test run is killed with SIGKILL', async () => {
    const program = `
      import { ServerGroup } from ${JSON.stringify(join(import.meta.dirname, 'server-group.ts'))}
      const group = new ServerGroup()
      console.log(group.folder)
      const args = ['-e', ${JSON.stringify(server)}, group.folder + '/pid']
      group.start({ program: process.execPath, args, logFile: group.folder + '/log', stopSignal: 'INT' })
      setInterval(() => {}, 1000)`
    await using owner = startProcess(['--input-type=module-typescript', '--eval', program])
    const { 1: folder = '' } = await owner.waitForOutput(/^(.+)\n/)
    const pid = await pidIn(join(folder, 'pid'))

    await owner.stop('SIGKILL')
    await until(() => !isRunning(pid) && !existsSync(folder))
  })

  it('the error for a server that stopped contains the end of its log', async () => {
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

  it('the error for a missing server program names the program', async () => {
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
  return eventually(() => {
    const pid = read()
    expect(pid).toBeGreaterThan(0)
    return pid
  })
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
