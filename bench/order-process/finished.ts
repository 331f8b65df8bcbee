import { type System, startSystem } from '@integration-host/tests/system'
import { Client } from 'pg'

const MODEL = 'model'

/** The number of transactions that are copied by one statement, so that PostgreSQL sorts them in memory. */
const SLICE = 100_000

/** A system whose database holds a given number of finished transactions. */
export interface FilledSystem extends AsyncDisposable {
  readonly system: System
  readonly finished: number
}

/**
 * Starts a system and fills its tables with copies of a transaction. A coordinator has run the copied transaction
 * to its end, so the rows are realistic.
 */
export async function startFilledSystem(finished: number): Promise<FilledSystem> {
  const system = await startSystem(['coordinator', 'demo-api'])
  try {
    const transactions = `${system.url('coordinator')}/processes/OrderProcess/transactions`
    const response = await system.call(transactions, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ TransactionID: MODEL, InitialData: MODEL }),
    })
    if (!response.ok)
      throw new Error(`the transaction to copy was rejected: ${await response.text()}`)
    await response.body?.cancel()
    await fill(system.databaseUrl, finished)
    for (const name of ['coordinator', 'demo-api'] as const)
      await system.service(name).stop('SIGTERM')
  } catch (error) {
    await system[Symbol.asyncDispose]()
    throw error
  }
  return { system, finished, [Symbol.asyncDispose]: () => system[Symbol.asyncDispose]() }
}

/** Inserts `finished` copies of the completed transaction, with ids that begin with `prefix`. */
export async function fill(
  databaseUrl: string,
  finished: number,
  prefix = 'finished',
): Promise<void> {
  const client = new Client({ connectionString: databaseUrl })
  await client.connect()
  try {
    await untilCompleted(client)
    // The copies are dated a day ago. The coordinator's audit reads recently finished transactions, and would otherwise
    // read all copies during the measurement.
    const { rows } = await client.query<{ table: string; columns: string; values: string }>(
      `select table_name as table, string_agg(quote_ident(column_name), ', ') as columns,
        string_agg(quote_ident(column_name) || case when data_type like 'timestamp%'
          then $q$ - interval '1 day'$q$ else '' end, ', ') as values
      from information_schema.columns
      where table_name in ('Order_Header', 'Order_Item', 'Order_Attempt')
        and column_name <> 'TransactionID' and is_identity = 'NO'
      group by table_name`,
    )
    for (const { table, columns, values } of rows) {
      for (let first = 1; first <= finished; first += SLICE)
        await client.query(
          `insert into "${table}" ("TransactionID", ${columns})
          select $4 || '-' || n, ${values} from "${table}", generate_series($1::int, $2::int) n
          where "TransactionID" = $3
          order by n -- as they would have come: pages of items of one size would leave room that others find later
          `,
          [first, Math.min(first + SLICE - 1, finished), MODEL, prefix],
        )
      await client.query(`vacuum analyze "${table}"`)
    }
    // The checkpoint writes the new pages to disk before the first round. Otherwise PostgreSQL would write them while
    // the first rounds are measured.
    await client.query('checkpoint')
  } finally {
    await client.end()
  }
}

async function untilCompleted(client: Client): Promise<void> {
  for (const until = performance.now() + 10_000; performance.now() < until;) {
    const { rowCount } = await client.query(
      `select from "Order_Header" where "TransactionID" = $1 and "Status" = 'Completed'`,
      [MODEL],
    )
    if (rowCount === 1) return
  }
  throw new Error('the transaction to copy was not completed in time')
}
