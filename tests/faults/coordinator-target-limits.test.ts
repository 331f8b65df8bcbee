import { fileURLToPath } from 'node:url'
import { until } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { expect, it } from 'vitest'
import { startHttpServer } from '../support/fakes/http-server.ts'
import { startSystem } from '../support/system.ts'

const PROCESSES = fileURLToPath(new URL('../support/faults/processes', import.meta.url))
/** The time limit of a call to the target in limited-process.ts. */
const CALL_LIMIT_MS = 1_000

it(
  'if a coordinator is killed during a call, the concurrency slot of the call is occupied until the time limit of the call',
  { timeout: 120_000 },
  async () => {
    const arrivals: { readonly path: string; readonly at: number }[] = []
    await using target = await startHttpServer((request, response) => {
      arrivals.push({ path: request.url ?? '', at: performance.now() })
      if (request.url !== '/held') response.end('{}')
    })
    await using system = await startSystem([])
    const start = async (): Promise<void> => {
      system.start('coordinator', { PROCESSES, LIMITED_PROCESS_URL: target.url })
      await system.ready('coordinator')
    }
    const runs = (): string => `${system.url('coordinator')}/processes/LimitedProcess/transactions`
    const queue = async (id: string, path: string): Promise<void> => {
      const response = await system.call(runs(), postJson({ TransactionID: id, InitialData: path }))
      expect(response.status).toBe(202)
    }
    await start()
    await queue('killed', '/held')
    await until(() => arrivals.length === 1)
    await system.service('coordinator').stop('SIGKILL')

    await start()
    await queue('next', '/next')
    let next: { readonly Status: string; readonly Attempts: unknown } | undefined
    await until(
      async () => {
        next = (await (await system.call(`${runs()}/next`)).json()) as typeof next
        return next?.Status === 'Completed'
      },
      { seconds: 60 },
    )
    // While the call of the killed coordinator occupied the only concurrency slot of the target, the step could not
    // call the target. This waiting was not counted as an attempt.
    expect(next?.Attempts).toMatchObject([{ Attempt: 1, Outcome: 'completed' }])
    const atOf = (path: string): number => arrivals.find((one) => one.path === path)?.at ?? 0
    expect(atOf('/next') - atOf('/held')).toBeGreaterThan(CALL_LIMIT_MS)
    expect(arrivals.filter(({ path }) => path === '/next')).toHaveLength(1)
  },
)
