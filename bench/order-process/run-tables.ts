import { batched } from '@integration-host/shared/batching'
import { Pool } from 'pg'
import type { EngineSettings } from './engine.ts'

interface StepResult {
  readonly id: string
  readonly step: string
  readonly data: unknown
}

/** The tables of the bare programs that show what the commits alone cost. */
export interface RunTables extends AsyncDisposable {
  insert(id: string): Promise<void>
  claim(id: string): Promise<void>
  record(result: StepResult): Promise<void>
}

/**
 * Makes PostgreSQL look runs up by their key. It plans the statements while the tables are empty, and would otherwise keep
 * plans that read whole tables.
 */
const BY_KEY = ['seqscan', 'hashjoin', 'mergejoin'].map((name) => `-c enable_${name}=off`).join(' ')

/**
 * Creates the tables `run` and `item`. All calls of a turn of the event loop share a statement, and one statement of each
 * kind is in flight.
 */
export async function openRunTables({ databaseUrl }: EngineSettings): Promise<RunTables> {
  const pool = new Pool({ connectionString: databaseUrl, max: 3, options: BY_KEY })
  await pool.query(`
    create table run (id text primary key, step text not null, version int not null default 0);
    create table item (id text, step text, data jsonb, primary key (id, step))`)
  const statement = <Input>(
    name: string,
    text: string,
    values: (inputs: readonly Input[]) => readonly (readonly string[])[],
  ): ((input: Input) => Promise<void>) =>
    batched<Input, void>(async (inputs) => {
      await pool.query({ name, text, values: [...values(inputs)] })
      return inputs.map(() => {})
    })
  return {
    insert: statement<string>(
      'insert',
      `insert into run select id, 'order' from unnest($1::text[]) as given (id)`,
      (ids) => [ids],
    ),
    claim: statement<string>(
      'claim',
      'update run set version = version + 1 where id = any($1::text[])',
      (ids) => [ids],
    ),
    record: statement<StepResult>(
      'record',
      `with given as (
        select * from unnest($1::text[], $2::text[], $3::jsonb[]) as given (id, step, data)
      ), moved as (
        update run set step = given.step, version = version + 1 from given where run.id = given.id
      )
      insert into item select * from given`,
      (results) => [
        results.map(({ id }) => id),
        results.map(({ step }) => step),
        results.map(({ data }) => JSON.stringify(data)),
      ],
    ),
    [Symbol.asyncDispose]: () => pool.end(),
  }
}
