import { fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Reply, Task, TaskResult } from './driver.ts'
import type { EngineName, EngineSettings } from './engine.ts'

const START_MS = 60_000
const END_MS = 5_000

export interface DriverProcess extends AsyncDisposable {
  readonly pid: number
  /**
   * Runs a task.
   *
   * @throws {Error} if the engine failed or timed out; the driver process cannot be used afterwards
   */
  run(task: Task, deadlineMs: number): Promise<TaskResult>
}

/**
 * Starts an engine in a separate process. Resolves when the engine accepts transactions. If the signal `leaving` is
 * aborted, the promise of the current task rejects.
 */
export async function startDriver(
  name: EngineName,
  settings: EngineSettings,
  leaving: AbortSignal,
): Promise<DriverProcess> {
  const child = fork(
    fileURLToPath(new URL('driver.ts', import.meta.url)),
    [name, JSON.stringify(settings)],
    {
      env: { PATH: process.env['PATH'], NODE_ENV: 'production' },
      execArgv: ['--no-deprecation'],
      // The driver's standard output is discarded, because some engines print greetings there. Its errors go to
      // standard error.
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    },
  )
  const gone = once(child, 'exit')
  async function nextReply(deadlineMs: number): Promise<TaskResult | undefined> {
    const timeout = new AbortController()
    const signal = AbortSignal.any([timeout.signal, leaving])
    try {
      const [reply] = await Promise.race([
        once(child, 'message', { signal }) as Promise<[Reply]>,
        gone.then(([code]) =>
          Promise.reject(new Error(`${name} exited with code ${code as number}`)),
        ),
        delay(deadlineMs, null, { signal }).then(() =>
          Promise.reject(new Error(`${name} timed out after ${deadlineMs / 1_000} s`)),
        ),
      ])
      if ('error' in reply) throw new Error(`${name}: ${reply.error}`)
      return reply.result
    } finally {
      timeout.abort()
    }
  }
  const driver: DriverProcess = {
    pid: child.pid ?? 0,
    async run(task, deadlineMs) {
      child.send(task)
      const result = await nextReply(deadlineMs)
      if (result === undefined) throw new Error(`${name} sent a reply without a result`)
      return result
    },
    async [Symbol.asyncDispose]() {
      if (child.connected) child.send({ kind: 'end' } satisfies Task)
      await Promise.race([gone, delay(END_MS, null, { ref: false })])
      child.kill('SIGKILL')
      await gone
    },
  }
  try {
    await nextReply(START_MS)
  } catch (error) {
    child.kill('SIGKILL')
    await gone
    throw error
  }
  return driver
}
