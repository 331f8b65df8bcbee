import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, chmodSync, openSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface ServerCommand {
  readonly program: string
  readonly args: readonly string[]
  readonly env?: NodeJS.ProcessEnv
  readonly logFile: string
  /** The signal that makes the server shut down cleanly and immediately. */
  readonly stopSignal: 'TERM' | 'INT'
  /** The account that runs the server, if the tests run as root but the server must not. */
  readonly user?: { readonly uid: number; readonly gid: number } | undefined
}

/**
 * Script of the guardian process, which ends the servers when its standard input ends. `ServerGroup.stop` closes
 * the input. The operating system closes the input if the test run ends in another way, for example because vitest
 * exits on Ctrl-C without a teardown. For each server the guardian reads one line `<signal> <process group>`.
 */
const guardian = `
  folder=$1 servers=
  while read -r signal group; do servers="$servers $signal,$group"; done
  for server in $servers; do kill -s "\${server%,*}" -- "-\${server#*,}"; done
  tries=100
  for server in $servers; do
    while [ $tries -gt 0 ] && kill -s 0 -- "-\${server#*,}"; do tries=$((tries - 1)); sleep 0.1; done
    kill -s KILL -- "-\${server#*,}"
  done
  rm -rf -- "$folder"
`

/** A group of servers that run for as long as the test run, with all their files in one temporary folder. */
export class ServerGroup {
  readonly folder: string
  readonly #guardian: ChildProcess

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'integration-host-tests-'))
    // The folder of a server may belong to another account, and this account needs access to the parent folder.
    chmodSync(this.folder, 0o711)
    this.#guardian = spawn('sh', ['-c', guardian, 'guardian', this.folder], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    })
  }

  start(command: ServerCommand): Server {
    const log = openSync(command.logFile, 'a')
    const child = spawn(command.program, command.args, {
      // Each server has its own process group. A Ctrl-C then reaches only the tests, and the guardian ends the
      // servers.
      detached: true,
      stdio: ['ignore', log, log],
      env: command.env ?? process.env,
      cwd: '/',
      ...command.user,
    })
    closeSync(log)
    if (child.pid !== undefined) {
      this.#guardian.stdin?.write(`${command.stopSignal} ${child.pid}\n`)
    }
    return new Server(command, child)
  }

  async stop(): Promise<void> {
    const ended = once(this.#guardian, 'exit')
    this.#guardian.stdin?.end()
    await ended
  }
}

export class Server {
  readonly #command: ServerCommand
  readonly #child: ChildProcess
  #startError: Error | undefined

  constructor(command: ServerCommand, child: ChildProcess) {
    this.#command = command
    this.#child = child
    child.on('error', (error) => {
      this.#startError = error
    })
  }

  /** Resolves when the started process has ended. */
  get ended(): Promise<unknown> {
    const { exitCode, signalCode } = this.#child
    return exitCode === null && signalCode === null ? once(this.#child, 'exit') : Promise.resolve()
  }

  /** Kills the server without a shutdown, like a crash. */
  async kill(): Promise<void> {
    const { ended } = this
    this.#child.kill('SIGKILL')
    await ended
  }

  /**
   * Fails if the server has stopped.
   *
   * @throws {Error} with the end of the server's log
   */
  async assertRunning(): Promise<void> {
    const { exitCode, signalCode } = this.#child
    if (this.#startError === undefined && exitCode === null && signalCode === null) return
    const log = await readFile(this.#command.logFile, 'utf8').catch(() => '')
    const end = log.trim().split('\n').slice(-5).join(' | ')
    throw new Error(`${this.#command.program} stopped: ${end || this.#startError?.message}`)
  }
}
