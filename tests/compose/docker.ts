import { execFile } from 'node:child_process'
import { join } from 'node:path'

/** The root of the checkout, in which every command runs. */
const ROOT = join(import.meta.dirname, '../..')

export type Environment = Readonly<Record<string, string>>

export interface Output {
  readonly code: number
  /** Standard output followed by standard error. */
  readonly text: string
}

/**
 * Runs a Docker command and resolves with its output, whatever its exit code is.
 *
 * @throws the abort reason of `signal` if the signal is aborted.
 */
export function runDocker(
  args: readonly string[],
  env: Environment,
  signal: AbortSignal,
): Promise<Output> {
  const options = {
    cwd: ROOT,
    env: { ...process.env, COMPOSE_PROFILES: '', ...env },
    maxBuffer: 64 * 1024 * 1024,
    signal,
  }
  return new Promise((resolve, reject) => {
    const child = execFile('docker', args, options, (error, stdout, stderr) => {
      if (signal.aborted) return reject(signal.reason as Error)
      // A shell also returns 127 if the program does not exist.
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 127
      return resolve({ code, text: stdout + stderr })
    })
    child.stdin?.end()
  })
}
