import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import type { ServiceProcess, System } from '../../support/system.ts'

/** The coordinator as the fault tests start it: on its real adapters, with settings for shorter times. */
export const dyingMain = 'test-support/failpoint-main.ts'

/** Where a process that was started on port 0 listens, once it does. */
export const addressOf = (process: ServiceProcess): Promise<string> =>
  eventually(() => {
    const { 1: url } =
      /"url":"(http:[^"]+)","msg":"service is listening"/.exec(process.output()) ?? []
    if (url === undefined) throw new Error(`it does not listen yet; it wrote:\n${process.output()}`)
    return url
  })

/** Where Node keeps such things by itself. */
const compiled = join(tmpdir(), 'node-compile-cache')

/** Starts one more coordinator beside the others, on a port of its own. */
export const startBeside = (
  system: System,
  env: Readonly<Record<string, string>>,
  entry?: string,
): ServiceProcess =>
  // Most of a short life is compiling.
  system.start('coordinator', { NODE_COMPILE_CACHE: compiled, ...env, PORT: '0' }, entry)

const TRANSACTIONS = '/processes/OrderProcess/transactions'

/** `POST` to a path below the transactions; null when the coordinator died before it answered. */
export async function post(
  system: System,
  coordinator: string,
  path: string,
  body: unknown,
): Promise<number | null> {
  const answer = await system
    .call(`${coordinator}${TRANSACTIONS}${path}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    })
    .catch(() => null)
  await answer?.body?.cancel()
  return answer?.status ?? null
}

/** Queues an order whose number is its initial data, as the demo API does. */
export const queueOrder = (system: System, coordinator: string, id: string) =>
  post(system, coordinator, '', { TransactionID: id, InitialData: id })

/** Queues all of them in one request. */
export async function queueBulk(
  system: System,
  coordinator: string,
  transactions: readonly { TransactionID: string; InitialData: string; Realm?: string }[],
): Promise<void> {
  const answer = await system.call(`${coordinator}${TRANSACTIONS}/bulk`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(transactions),
  })
  expect(await answer.json()).toMatchObject({ queued: transactions.length })
}

/** `count` orders, and what identifies them. */
export const orders = (count: number, prefix: string) =>
  Array.from({ length: count }, (_, n) => ({
    TransactionID: `${prefix}${n}`,
    InitialData: `${prefix}${n}`,
  }))

/** How often a line was logged. */
export const logged = (process: ServiceProcess, message: string): number =>
  process.output().split(`"msg":"${message}"`).length - 1
