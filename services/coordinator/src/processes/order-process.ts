import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { stringify } from 'csv-stringify/sync'
import { defineProcess, type RunFiles, z } from 'integration-host'

export const OrderResponse = z.object({
  Order: z.string(),
  CreatedAt: z.iso.datetime({ offset: true }),
})
export const ReportResponse = OrderResponse.extend({ Status: z.string() })

/** The initial data is the number of the order, or any other JSON value. The demo API accepts both as an order. */
const orderOf = (initialData: unknown): string => `O-${String(initialData)}`

const csvFile = (run: Parameters<RunFiles>[0]): string =>
  join(run.settings.dataDir, 'OrderCSV', csvFileName(run))

export default defineProcess('OrderProcess', {
  requireInternet: true,
  // The coordinator sets it to its own DEMO_API_URL.
  settings: { demoApiUrl: z.url().default('http://127.0.0.1:7216') },
  files: (run) => [csvFile(run)],
})
  .step('order', (step) =>
    step.execute(
      {
        url: `${step.settings.demoApiUrl}/order`,
        query: { order: orderOf(step.initialData) },
      },
      { parse: (body) => OrderResponse.parse(body) },
    ),
  )
  .step('report', (step) => {
    const { Order, CreatedAt } = step.previous.data
    // `CreatedAt` is passed on as text. Parsing and formatting the time would lose digits or the UTC offset.
    const query = { order: Order, created: CreatedAt }
    return step.execute({ url: `${step.settings.demoApiUrl}/report`, query })
  })
  .step('csv', async (step) => {
    const { CreatedAt, Status } = ReportResponse.parse(JSON.parse(step.previous.ResponseBody ?? ''))
    const row = { Order: step.item('order').data.Order, CreatedAt, Status }
    const file = csvFile(step)
    if (step.attempt > 1) await step.files.removeTemporaryFiles(file)
    await step.files.writeAtomic(file, csvOf(row))
    return step.setStatus('Completed')
  })

/**
 * Returns the CSV of an order: a header line and one row. Cells that a spreadsheet would run as a formula are
 * escaped.
 */
export const csvOf = (row: Readonly<Record<string, string>>): string =>
  stringify([row], { header: true, escape_formulas: true, quoted_match: /[\r\n]/ })

/**
 * Returns the file name `Order_<TransactionID>.<ReplayID>.csv`. Every byte except letters, digits, `.`, `_` and
 * `-` is percent-encoded.
 */
export function csvFileName(run: {
  readonly transactionId: string
  readonly replayId: number
}): string {
  const plain = run.transactionId.replaceAll(/[^A-Za-z0-9._-]/gu, (character) =>
    [...Buffer.from(character)]
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
      .join(''),
  )
  return `Order_${plain.length <= MAX_NAME ? plain : shortened(plain)}.${run.replayId}.csv`
}

// File systems allow 255 bytes for a name. A shortened id contains `%-` before its digest. A complete id never contains
// `%-`, so the two kinds of names cannot be equal.
const MAX_NAME = 200
const shortened = (plain: string): string =>
  `${plain.slice(0, 140)}%-${createHash('sha256').update(plain).digest('hex').slice(0, 40)}`
