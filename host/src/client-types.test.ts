/** The types of the client for a process whose definition is known. */
import { defineProcess, z } from 'integration-host'
import { createClient, type ProcessClient } from 'integration-host/client'
import { expectTypeOf, it } from 'vitest'

const invoice = defineProcess('Invoice', {
  input: z.object({
    customer: z.string(),
    amount: z.coerce.number(),
    note: z.string().default(''),
  }),
})
  .step('order', (step) => step.complete(step.initialData.amount))
  .event('approved')
  .step('bill', (step) => step.complete(step.item('order').data))
const anything = defineProcess('Anything').step('one', (step) => step.complete())

it('the client of a process takes the initial data that the schema of its definition accepts', () => {
  const client = createClient({ coordinator: 'http://127.0.0.1:1', key: 'k' })
  type Accepted = { customer: string; amount: unknown; note?: string | undefined }
  expectTypeOf(client.process<typeof invoice>('Invoice')).toEqualTypeOf<ProcessClient<Accepted>>()
  expectTypeOf(client.process<typeof anything>('A')).toEqualTypeOf(client.process('A'))
  expectTypeOf(client.process<{ a: 1 }>('A')).toEqualTypeOf<ProcessClient<{ a: 1 }>>()
  // @ts-expect-error the customer is missing
  void (() => client.process<typeof invoice>('Invoice').queue('1', { amount: 5 }))
})
