/** Starts an OS process, reads its output and ends the process, for the tests of every package. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'

// The timeout is long enough for a process that compiles its sources on a loaded machine.
const OUTPUT_DEADLINE_MS = 60_000

export interface ProcessOptions {
  /** The environment of the process. In addition to these variables the process inherits only PATH and NODE_COMPILE_CACHE. */
  readonly env?: Readonly<Record<string, string | undefined>>
  readonly cwd?: string
  /** The program to run instead of the Node executable that runs the tests. */
  readonly program?: string
}

export interface ProcessResult {
  /** The exit code; `null` if a signal ended the process. */
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface StartedProcess extends AsyncDisposable {
  readonly pid: number
  /** Resolves when the process has ended and all its output has been read. */
  readonly ended: Promise<ProcessResult>
  /** Returns everything written so far: standard output and standard error, merged in the order of arrival. */
  output(): string
  /** Sends a signal without waiting for its effect. Does nothing if the process has ended. */
  signal(signal: NodeJS.Signals): void
  /**
   * Resolves with the first match of `pattern` in the output.
   *
   * @throws {Error} with the output so far if the process ends first, or after 60 s.
   */
  waitForOutput(pattern: RegExp): Promise<RegExpExecArray>
  /** Sends `signal` if the process still runs. Resolves with the exit code; `null` if a signal ended the process. */
  stop(signal: NodeJS.Signals): Promise<number | null>
}

/** Starts Node or another program, and returns without waiting. Disposing kills the process and waits for its end. */
export function startProcess(
  args: readonly string[],
  { env = {}, cwd, program = process.execPath }: ProcessOptions = {},
): StartedProcess {
  const { PATH = '', NODE_COMPILE_CACHE } = process.env
  const child = spawn(program, args, {
    cwd,
    env: { PATH, NODE_COMPILE_CACHE, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const written = { stdout: '', stderr: '', both: '' }
  const listeners = new Set<() => void>()
  for (const stream of ['stdout', 'stderr'] as const)
    child[stream].setEncoding('utf8').on('data', (text: string) => {
      written[stream] += text
      written.both += text
      for (const listener of listeners) listener()
    })
  // The event `close` follows `exit`, after both streams have been read to the end.
  const ended = once(child, 'close').then(([code]): ProcessResult => ({
    code: code as number | null,
    stdout: written.stdout,
    stderr: written.stderr,
  }))
  const signal = (name: NodeJS.Signals): void => {
    if (child.exitCode === null && child.signalCode === null) child.kill(name)
  }
  const stop = async (name: NodeJS.Signals): Promise<number | null> => {
    signal(name)
    return (await ended).code
  }
  return {
    pid: child.pid ?? 0,
    ended,
    output: () => written.both,
    signal,
    waitForOutput(pattern) {
      const { promise, resolve, reject } = Promise.withResolvers<RegExpExecArray>()
      const fail = (reason: string): void =>
        reject(
          new Error(`${reason} before its output matched ${pattern}; output:\n${written.both}`),
        )
      const check = (): void => {
        const match = pattern.exec(written.both)
        if (match !== null) resolve(match)
      }
      const timer = setTimeout(() => fail('60 s passed'), OUTPUT_DEADLINE_MS)
      listeners.add(check)
      check()
      ended.then(() => fail('the process ended'), reject)
      return promise.finally(() => {
        clearTimeout(timer)
        listeners.delete(check)
      })
    },
    stop,
    [Symbol.asyncDispose]: async () => void (await stop('SIGKILL')),
  }
}

/** Runs Node, or another program, to its end. */
export const runProcess = (
  args: readonly string[],
  options?: ProcessOptions,
): Promise<ProcessResult> => startProcess(args, options).ended

/** Resolves with the listening URL that a service of this project writes to its log. */
export async function listeningUrl(
  started: Pick<StartedProcess, 'waitForOutput'>,
): Promise<string> {
  const { 1: url = '' } = await started.waitForOutput(
    /"url":"(http:[^"]+)","msg":"service is listening"/,
  )
  return url
}
