import { spawn } from 'node:child_process'
import { once } from 'node:events'

export interface KillCommandOptions {
  readonly env: Readonly<Record<string, string | undefined>>
  /** Aborting this signal terminates the command with SIGTERM. */
  readonly signal: AbortSignal
  /** Receives what the command writes to standard output and standard error. */
  readonly onOutput: (text: string) => void
}

/**
 * Runs a command of the user in a shell and waits until it has ended.
 *
 * @throws {Error} if the exit code is not 0, or the command was ended by a signal.
 */
export async function runKillCommand(
  command: string,
  { env, signal, onOutput }: KillCommandOptions,
): Promise<void> {
  const child = spawn(command, {
    shell: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...env },
    // The shell gets its own process group, so that one signal ends the shell and all programs that it has started.
    detached: true,
  })
  const end = (): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGTERM')
    } catch {
      // `process.kill` throws if the command has just ended by itself.
    }
  }
  signal.addEventListener('abort', end, { once: true })
  child.stdout.on('data', (chunk: Buffer) => onOutput(chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => onOutput(chunk.toString()))
  try {
    const [code, name] = (await once(child, 'exit')) as [number | null, string | null]
    if (code !== 0)
      throw new Error(
        code === null
          ? `the kill command was ended by ${name ?? 'a signal'}`
          : `the kill command exited with code ${code}`,
      )
  } finally {
    signal.removeEventListener('abort', end)
  }
}
