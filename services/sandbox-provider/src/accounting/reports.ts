/** Computes the reports ProfitAndLoss and AgedReceivables from the transactions of a company. */
import { asObject } from '@integration-host/shared/json'
import type { Entity } from './entities.ts'
import type { Body, PostedEntities } from './posted-entities.ts'

export type Report = (
  posted: PostedEntities,
  realm: string,
  parameters: Readonly<Record<string, string>>,
  now: Date,
) => Body

/** Returns the function that computes a report; `null` if the sandbox does not support this report. */
export const reportNamed = (name: string): Report | null =>
  REPORTS.find(([known]) => known.toLowerCase() === name.toLowerCase())?.[1] ?? null

const DAY_MS = 86_400_000
/**
 * The kinds of transactions that are income or expenses. The number says whether their amount is added (1) or
 * subtracted (-1).
 */
const INCOME: readonly (readonly [Entity, 1 | -1])[] = [
  ['Invoice', 1],
  ['SalesReceipt', 1],
  ['CreditMemo', -1],
  ['RefundReceipt', -1],
]
const EXPENSES: readonly (readonly [Entity, 1 | -1])[] = [
  ['Bill', 1],
  ['Purchase', 1],
  ['VendorCredit', -1],
]

/** Computes income and expenses from `start_date` to `end_date`, by default for the current year. */
const profitAndLoss: Report = (posted, realm, parameters, now) => {
  const from = parameters['start_date'] ?? `${now.getUTCFullYear()}-01-01`
  const to = parameters['end_date'] ?? now.toISOString().slice(0, 10)
  const sum = (kinds: typeof INCOME): number =>
    kinds.reduce((total, [entity, sign]) => {
      const amounts = posted
        .list(realm, entity)
        .filter((one) => dateOf(one) >= from && dateOf(one) <= to)
        .map(({ TotalAmt }) => Number(TotalAmt))
      return total + sign * amounts.reduce((part, amount) => part + amount, 0)
    }, 0)
  const income = sum(INCOME)
  const expenses = sum(EXPENSES)
  const section = (group: string, label: string, name: string, amount: number) => ({
    Header: { ColData: [{ value: label }, { value: '' }] },
    Rows: { Row: [{ ColData: [{ value: name }, { value: money(amount) }], type: 'Data' }] },
    Summary: { ColData: [{ value: `Total ${label}` }, { value: money(amount) }] },
    type: 'Section',
    group,
  })
  return {
    Header: headerOf(
      'ProfitAndLoss',
      now,
      { StartPeriod: from, EndPeriod: to },
      income === 0 && expenses === 0,
    ),
    Columns: { Column: [column('', 'Account'), column('Total', 'Money')] },
    Rows: {
      Row: [
        section('Income', 'Income', 'Sales', income),
        section('Expenses', 'Expenses', 'Purchases', expenses),
        {
          Summary: { ColData: [{ value: 'Net Income' }, { value: money(income - expenses) }] },
          type: 'Section',
          group: 'NetIncome',
        },
      ],
    },
  }
}

const PERIODS = ['Current', '1 - 30', '31 - 60', '61 - 90', '91 and over'] as const

/**
 * Computes the unpaid amounts of invoices for each customer, grouped by the number of days between the due date and
 * `report_date`.
 */
const agedReceivables: Report = (posted, realm, parameters, now) => {
  const date = parameters['report_date'] ?? now.toISOString().slice(0, 10)
  const amounts = new Map<string, number[]>()
  for (const invoice of posted.list(realm, 'Invoice')) {
    const balance = Number(invoice['Balance'])
    if (balance === 0 || dateOf(invoice) > date) continue
    const reference = asObject(invoice['CustomerRef'])
    const names = [reference?.['name'], reference?.['value']]
    const customer = names.find((name) => typeof name === 'string') ?? ''
    const days = Math.floor((Date.parse(date) - Date.parse(String(invoice['DueDate']))) / DAY_MS)
    const period = days <= 0 || Number.isNaN(days) ? 0 : Math.min(4, Math.ceil(days / 30))
    const row = amounts.get(customer) ?? PERIODS.map(() => 0)
    row[period] = (row[period] ?? 0) + balance
    amounts.set(customer, row)
  }
  const cells = (name: string, row: readonly number[]) => [
    { value: name },
    ...row.map((amount) => ({ value: amount === 0 ? '' : money(amount) })),
    { value: money(row.reduce((sum, amount) => sum + amount, 0)) },
  ]
  const rows = [...amounts].toSorted(([one], [other]) => (one < other ? -1 : 1))
  const totals = PERIODS.map((_, index) =>
    rows.reduce((sum, [, row]) => sum + (row[index] ?? 0), 0),
  )
  return {
    Header: headerOf('AgedReceivables', now, { EndPeriod: date }, rows.length === 0),
    Columns: {
      Column: [
        column('', 'Customer'),
        ...PERIODS.map((period) => column(period, 'Money')),
        column('Total', 'Money'),
      ],
    },
    Rows: {
      Row: [
        ...rows.map(([name, row]) => ({ ColData: cells(name, row) })),
        { Summary: { ColData: cells('TOTAL', totals) }, type: 'Section', group: 'GrandTotal' },
      ],
    },
  }
}

const REPORTS: readonly (readonly [name: string, report: Report])[] = [
  ['ProfitAndLoss', profitAndLoss],
  ['AgedReceivables', agedReceivables],
]

const headerOf = (
  ReportName: string,
  now: Date,
  period: Readonly<Record<string, string>>,
  isEmpty: boolean,
) => ({
  Time: now.toISOString(),
  ReportName,
  ...period,
  Currency: 'USD',
  Option: [{ Name: 'NoReportData', Value: String(isEmpty) }],
})

const column = (ColTitle: string, ColType: string) => ({ ColTitle, ColType })
const money = (amount: number): string => amount.toFixed(2)

const dateOf = ({ TxnDate }: Body): string => String(TxnDate)
