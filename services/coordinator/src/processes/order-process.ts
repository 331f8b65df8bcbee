import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { stringify } from 'csv-stringify/sync'
import { z } from 'zod'
import { defineProcess, type RunFiles } from '../process/definition.ts'
import type { Step } from '../process/step.ts'

const OrderResponse = z.object({ Order: z.string(), CreatedAt: z.iso.datetime({ offset: true }) })
const ReportResponse = OrderResponse.extend({ Status: z.string() })

const order = (step: Step<string | number>) =>
  step.execute(
    { url: `${step.settings.demoApiUrl}/order`, query: { order: `O-${step.initialData}` } },
    { parse: (body) => OrderResponse.parse(body) },
  )

const report = (step: Step<string | number, typeof order>) => {
  const { Order, CreatedAt } = step.previous.data
  // `CreatedAt` is passed on as text, because parsing and printing it again would lose digits or its UTC offset.
  const query = { order: Order, created: CreatedAt }
  return step.execute({ url: `${step.settings.demoApiUrl}/report`, query })
}

const csv = async (step: Step<string | number, typeof report, { order: typeof order }>) => {
  const { CreatedAt, Status } = ReportResponse.parse(JSON.parse(step.previous.ResponseBody ?? ''))
  const row = { Order: step.item('order').data.Order, CreatedAt, Status }
  const file = csvFile(step)
  if (step.attempt > 1) await step.files.removeTemporaryFiles(file)
  await step.files.writeAtomic(file, csvOf(row))
  step.setStatus('Completed')
}

const csvFile = (run: Parameters<RunFiles>[0]): string =>
  join(run.settings.dataDir, 'OrderCSV', csvFileName(run))

export default defineProcess('OrderProcess', {
  requireInternet: true,
  files: (run) => [csvFile(run)],
  steps: { order, report, csv },
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
  const plain = [...Buffer.from(run.transactionId)]
    .map((byte) => {
      const character = String.fromCodePoint(byte)
      return /[A-Za-z0-9._-]/.test(character)
        ? character
        : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
    })
    .join('')
  return `Order_${plain.length <= MAX_NAME ? plain : shortened(plain)}.${run.replayId}.csv`
}

// File systems allow 255 bytes for a name. No encoded id contains `%-`, so a shortened name never equals a
// complete one.
const MAX_NAME = 200
const shortened = (plain: string): string =>
  `${plain.slice(0, 140)}%-${createHash('sha256').update(plain).digest('hex').slice(0, 40)}`
