/**
 * The work of the three steps. All engines except the coordinator run these steps, which do the same as the steps of the
 * coordinator's OrderProcess: they make the same calls, check the responses with the same schemas, and write the same
 * CSV file.
 */
import { join } from 'node:path'
import { installModuleHook } from '../../services/coordinator/src/adapters/folder/module-hook.ts'
import type { EngineSettings } from './engine.ts'
import { type Tools, usualTools } from './tools.ts'

// The file of the process imports `integration-host`, which only this hook resolves.
installModuleHook([])
const { csvFileName, csvOf, OrderResponse, ReportResponse } =
  await import('../../services/coordinator/src/processes/order-process.ts')

export interface Order {
  readonly Order: string
  readonly CreatedAt: string
}
export interface Report extends Order {
  readonly Status: string
}
export interface Steps {
  order(id: string): Promise<Order>
  report(order: Order): Promise<Report>
  /** Writes the CSV file and resolves with the name of the file. */
  csv(id: string, report: Report): Promise<string>
}

export function createSteps(
  { stubUrl, dataDir }: EngineSettings,
  { get, writeFile }: Tools = usualTools(),
): Steps {
  const urlOf = (path: string, query: Readonly<Record<string, string>>): string =>
    `${stubUrl}${path}?${new URLSearchParams(query).toString()}`
  return {
    order: async (id) => OrderResponse.parse(await get(urlOf('/order', { order: `O-${id}` }))),
    report: async ({ Order, CreatedAt }) =>
      (await get(urlOf('/report', { order: Order, created: CreatedAt }))) as Report,
    async csv(id, report) {
      const { Order, CreatedAt, Status } = ReportResponse.parse(report)
      const name = csvFileName({ transactionId: id, replayId: 0 })
      await writeFile(join(dataDir, 'OrderCSV', name), csvOf({ Order, CreatedAt, Status }))
      return name
    },
  }
}
