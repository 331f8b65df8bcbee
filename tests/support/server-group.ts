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
  /** Its polite way to stop at once. */
  readonly stopSignal: 'TERM' | 'INT'
  /** Whom to become, when root may not run it. */
  readonly user?: { readonly uid: number; readonly gid: number } | undefined
}

/**
 * Ends the servers when its standard input ends: closed by `ServerGroup.stop`, or by the system because
 * the test run is gone, however that happened (vitest leaves at once on Ctrl-C and runs no teardown).
 * Reads one `<signal> <process group>` line for each server.
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

/** Servers that live as long as this test run, with all their files in one temporary folder. */
export class ServerGroup {
  readonly folder: string
  readonly #guardian: ChildProcess

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'integration-host-tests-'))
    // Servers that must not run as root own a folder in this one and have to get there.
    chmodSync(this.folder, 0o711)
    this.#guardian = spawn('sh', ['-c', guardian, 'guardian', this.folder], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    })
  }

  start(command: ServerCommand): Server {
    const log = openSync(command.logFile, 'a')
    const child = spawn(command.program, command.args, {
      detached: true, // a process group of its own: Ctrl-C is for the tests, the guardian does the rest
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
    const left = once(this.#guardian, 'exit')
    this.#guardian.stdin?.end()
    await left
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

  /** Ends it as losing the power would. */
  async kill(): Promise<void> {
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await gone
  }

  /** @throws {Error} with the end of its log, once the server has stopped. */
  async assertRunning(): Promise<void> {
    const { exitCode, signalCode } = this.#child
    if (this.#startError === undefined && exitCode === null && signalCode === null) return
    const log = await readFile(this.#command.logFile, 'utf8').catch(() => '')
    const end = log.trim().split('\n').slice(-5).join(' | ')
    throw new Error(`${this.#command.program} stopped: ${end || this.#startError?.message}`)
  }
}
