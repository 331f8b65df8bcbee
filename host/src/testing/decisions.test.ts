import { defineProcess, z } from 'integration-host'
import { startTestHost } from 'integration-host/testing'
import { expect, it } from 'vitest'

const bills = defineProcess('Bills', { input: z.object({ amount: z.number() }) })
  .step('ask', (step) => {
    const text = `Please decide: ${step.linkTo('approved', { for: 'ada@example.com' })}`
    return step.execute({ url: 'https://mail.test/send', method: 'POST', body: { text } })
  })
  .event('approved', {
    data: z.object({ approved: z.boolean() }),
    ask: (step) => ({ title: `Pay ${step.initialData.amount}?` }),
  })

it('each attempt of a step gets the same address, so that a repeated call has the same body', async () => {
  await using host = await startTestHost({ processes: bills })
  const mail = host
    .target('https://mail.test')
    .on('POST /send', [{ status: 503 }, { status: 503 }, { status: 200, body: {} }])
  const run = await host.run(bills, 'b-1', { amount: 5 })
  await host.advance('1 hour')
  run.toHaveStatus('Waiting')
  const [first, ...others] = mail.calls
  expect(others.map(({ body }) => body)).toEqual([first?.body, first?.body])
  const other = await host.run(bills, 'b-2', { amount: 5 })
  other.toHaveStatus('Waiting')
  expect(mail.calls.at(-1)?.body).not.toEqual(first?.body)
})

it('a step sends the address of a decision, and a test decides with a signal', async () => {
  await using host = await startTestHost({ processes: bills })
  const mail = host.target('https://mail.test').on('POST /send', { status: 200, body: {} })
  const run = await host.run(bills, 'b-1', { amount: 5 })
  run.toHaveStatus('Waiting')
  expect(JSON.stringify(mail.calls[0]?.body)).toContain('/decisions/1.k1.')
  expect(await run.link('approved', { for: 'bob@example.com' })).toContain('/decisions/1.k1.')
  expect(run.view.Items[1]).toMatchObject({ Ask: { title: 'Pay 5?', facts: {} } })
  await run.signal('approved', { approved: true })
  run.toHaveStatus('Completed')
})
