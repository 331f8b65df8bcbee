import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect } from 'vitest'
import type { ServiceProcess, System } from '../system.ts'
import { until } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { listeningUrl } from '@integration-host/shared/test-support/start-process'

/** The default folder of Node's compile cache. */
const compileCache = join(tmpdir(), 'node-compile-cache')

/** Starts one more coordinator on a free port, without waiting until it is ready. */
export const startAnotherCoordinator = (
  system: System,
  env: Readonly<Record<string, string>>,
  entry?: string,
): ServiceProcess =>
  // Without the compile cache, a process that is soon killed would spend most of its lifetime on compilation.
  system.start('coordinator', { NODE_COMPILE_CACHE: compileCache, ...env, PORT: '0' }, entry)

/**
 * Resolves with the URL of a coordinator that is connected to all that it needs. A run that is queued before the
 * coordinator is connected to RabbitMQ starts only when the sweeper finds it.
 */
export async function readyUrl(coordinator: ServiceProcess): Promise<string> {
  const url = await listeningUrl(coordinator)
  await until(async () => {
    const response = await fetch(`${url}/health/ready`)
    await response.body?.cancel()
    return response.ok
  })
  return url
}

const TRANSACTIONS = '/processes/OrderProcess/transactions'

/**
 * Sends a `POST` request to a path below `/processes/OrderProcess/transactions`. Returns the response status; `null` if
 * the coordinator died before it responded.
 */
export async function post(
  system: System,
  coordinator: string,
  path: string,
  body: unknown,
): Promise<number | null> {
  const response = await system
    .call(`${coordinator}${TRANSACTIONS}${path}`, postJson(body))
    .catch(() => null)
  await response?.body?.cancel()
  return response?.status ?? null
}

/** Queues an order with the order number as its initial data, as the demo API does. */
export const queueOrder = (system: System, coordinator: string, id: string) =>
  post(system, coordinator, '', { TransactionID: id, InitialData: id })

/** Queues all orders in one request. */
export async function queueOrders(
  system: System,
  coordinator: string,
  transactions: readonly { TransactionID: string; InitialData: string; Realm?: string }[],
): Promise<void> {
  const response = await system.call(`${coordinator}${TRANSACTIONS}/bulk`, postJson(transactions))
  expect(await response.json()).toMatchObject({ queued: transactions.length })
}

/** Returns `count` orders with the ids `<prefix>0`, `<prefix>1`, … */
export const orders = (count: number, prefix: string) =>
  Array.from({ length: count }, (_, n) => ({
    TransactionID: `${prefix}${n}`,
    InitialData: `${prefix}${n}`,
  }))

/** Counts the log lines of a coordinator that contain this message. */
export const countLogLines = (process: ServiceProcess, message: string): number =>
  process.output().split(`"msg":"${message}"`).length - 1
