import { until } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type Fixture, startEmbedded } from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'
import { outlineOf } from '../step/definition.ts'

const Tree = z.object({
  name: z.string(),
  get children(): z.ZodArray<typeof Tree> {
    return z.array(Tree)
  },
})

const sale = defineProcess('Sale', {
  input: z.object({
    customer: z.string(),
    lines: z.array(z.object({ amount: z.coerce.number().positive() })).min(1),
    at: z.date().optional(),
  }),
}).step('only', (step) => step.complete(step.initialData.lines.map(({ amount }) => amount)))
const tree = defineProcess('Tree', { input: Tree }).step('only', (step) => step.complete())
const doubled = defineProcess('Doubled', {
  input: z.tuple([z.string().meta({ id: 'same' }), z.number().meta({ id: 'same' })]),
}).step('only', (step) => step.complete())
const any = defineProcess('Any').step('only', (step) => step.complete())
const everything = defineProcess('Everything', { input: z.unknown() }).step('only', (step) =>
  step.complete(step.initialData === null ? 'null' : typeof step.initialData),
)

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded({
    times: { sweepMs: 200 },
    processes: [sale, tree, doubled, any, everything],
  })
})
afterAll(() => host[Symbol.asyncDispose]())

const post = (path: string, body: unknown) =>
  host.call(`/processes/Sale/transactions${path}`, postJson(body))
const good = { customer: 'Ada', lines: [{ amount: '66' }] }
const bad = { customer: 7, lines: [{ amount: 1 }, { amount: 'much' }] }
const paths = [
  expect.stringMatching(/^InitialData\.customer: /),
  expect.stringMatching(/^InitialData\.lines\.1\.amount: /),
]

describe('the input schema of a process', () => {
  it('a transaction is rejected with the paths of the errors, and not stored, if its initial data does not match the schema', async () => {
    const response = await host.queue('bad', bad)
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ code: 'input_invalid', errors: paths })
    expect((await host.call('/processes/Sale/transactions/bad')).status).toBe(404)
  })

  it('initial data that matches the schema is stored as it was sent, and the steps get the result of the schema', async () => {
    expect((await host.queue('good', good)).status).toBe(202)
    const run = await host.reached('good', 'Completed')
    expect(run.InitialData).toEqual(good)
    expect(run.Items[0]?.Data).toEqual([66])
    expect((await host.queue('good', good)).status).toBe(200)
  })

  it('a bulk request checks the initial data of each line separately', async () => {
    const line = (TransactionID: string, InitialData: unknown) => ({ TransactionID, InitialData })
    const lines = [
      line('b1', good),
      line('b2', bad),
      line('b3', null),
      line('b1', bad),
      line('b4', good),
    ]
    const response = await post('/bulk', lines)
    expect(response.status).toBe(200)
    const invalid = { outcome: 'invalid', code: 'input_invalid' }
    expect(await response.json()).toMatchObject({
      queued: 2,
      invalid: 3,
      results: [
        { line: 1, TransactionID: 'b1', outcome: 'queued' },
        { line: 2, TransactionID: 'b2', ...invalid, errors: paths },
        { line: 3, ...invalid, errors: [expect.stringMatching(/^InitialData: /)] },
        { line: 4, ...invalid },
        { line: 5, TransactionID: 'b4', outcome: 'queued' },
      ],
    })
    await host.reached('b4', 'Completed')
  })

  it('the initial data of a replay is checked only if it differs from that of the previous run', async () => {
    await host.queue('again', good)
    await host.reached('again', 'Completed')
    const rejected = await post('/again/replays', { InitialData: bad })
    expect(rejected.status).toBe(400)
    expect(await rejected.json()).toMatchObject({ code: 'input_invalid', errors: paths })
    expect((await post('/again/replays', {})).status).toBe(202)
    await host.reached('again', 'Completed', 1)
    expect((await post('/again/replays', { InitialData: good })).status).toBe(202)
  })

  it('a run that another program inserts fails at its first step if its data does not match the schema', async () => {
    // The transaction source does not know the schema. Therefore it stores the data without a check, as if another
    // program had inserted the row with SQL.
    await host.source.queue(outlineOf(sale), [{ TransactionID: 'inserted', InitialData: bad }])
    const run = await host.reached('inserted', 'Failed')
    expect(run).toMatchObject({
      ErrorClass: 'input_invalid',
      LastError: expect.stringContaining('InitialData.lines.1.amount'),
    })
  })

  it('with a schema that accepts everything, the initial data may be any JSON that can be stored, but must not be missing', async () => {
    const transactions = '/processes/Everything/transactions'
    const queue = (body: string): Promise<Response> =>
      host.call(transactions, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body,
      })
    const values = {
      null: 'null',
      true: 'boolean',
      '1.5': 'number',
      '""': 'string',
      '[[]]': 'object',
    }
    for (const [json, type] of Object.entries(values)) {
      const id = `any-${type}`
      const queued = await queue(`{"TransactionID": "${id}", "InitialData": ${json}}`)
      expect(queued.status, json).toBe(202)
      await until(async () => {
        const { Status, Items } = (await (await host.call(`${transactions}/${id}`)).json()) as {
          Status: string
          Items: readonly { Data: unknown }[]
        }
        return Status === 'Completed' && Items[0]?.Data === type
      })
    }
    for (const body of [
      '{"TransactionID": "bad"}',
      '{"TransactionID": "bad", "InitialData": "\\u0000"}',
    ])
      expect((await queue(body)).status, body).toBe(400)
  })

  it('GET /processes/{process} returns the input schema as JSON Schema', async () => {
    const schemaOf = async (name: string) =>
      ((await (await host.call(`/processes/${name}`)).json()) as { Input: unknown }).Input
    expect(await schemaOf('Sale')).toMatchObject({
      type: 'object',
      required: ['customer', 'lines'],
      properties: { customer: { type: 'string' }, lines: { type: 'array', minItems: 1 }, at: {} },
    })
    expect(JSON.stringify(await schemaOf('Tree'))).toContain('$ref')
    expect(await schemaOf('Doubled')).toEqual({})
    expect(await schemaOf('Everything')).toEqual(
      expect.not.objectContaining({ type: expect.anything() }),
    )
    expect(await schemaOf('Any')).toBeNull()
    const unknown = await host.call('/processes/Nope')
    expect(unknown.status).toBe(404)
    expect(await unknown.json()).toMatchObject({ code: 'process_not_found' })
  })
})
