import { defineProcess, z } from 'integration-host'
import { startTestHost, type TestHost } from 'integration-host/testing'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const REALM = '42'
const idOf = (entity: string) => (body: unknown) =>
  z.object({ [entity]: z.object({ Id: z.string() }) }).parse(body)[entity]?.Id ?? ''
const post = <Body extends object>({ realm }: OfCompany, path: string, body: Body) =>
  ({ url: `/v3/company/${realm}/${path}`, method: 'POST', body }) as const
const credentialOf = ({ realm }: OfCompany) => ({ credential: `ACC-${realm}` })
interface OfCompany {
  readonly realm: string | null
}

/** Creates a customer and an invoice, and with `paid` a payment of the invoice. */
const sales = defineProcess('Sales', {
  input: z.object({ name: z.string(), paid: z.boolean(), fails: z.boolean().optional() }),
})
  .step('customer', (step) =>
    step.execute(post(step, 'customer', { DisplayName: step.initialData.name }), {
      ...credentialOf(step),
      parse: idOf('Customer'),
    }),
  )
  .step('invoice', (step) =>
    step.execute(
      post(step, 'invoice', {
        CustomerRef: { value: step.previous.data },
        Line: [{ Amount: 50, DetailType: 'SalesItemLineDetail' }],
      }),
      { ...credentialOf(step), parse: idOf('Invoice') },
    ),
  )
  .step('payment', (step) => {
    if (step.initialData.fails === true) return step.fail('as the test wants')
    if (!step.initialData.paid) return step.complete()
    const linked = { TxnId: step.previous.data, TxnType: 'Invoice' }
    return step.execute(
      post(step, 'payment', {
        CustomerRef: { value: step.item('customer').data },
        TotalAmt: 50,
        Line: [{ Amount: 50, LinkedTxn: [linked] }],
      }),
      credentialOf(step),
    )
  })

describe('taking back', () => {
  let host: TestHost
  let company: Awaited<ReturnType<TestHost['company']>>
  beforeEach(async () => {
    host = await startTestHost({ processes: sales })
    company = await host.company(REALM)
  })
  afterEach(() => host[Symbol.asyncDispose]())
  const sell = (id: string, data: object = {}) =>
    host.run(sales, id, { name: `Ada ${id}`, paid: true, ...data }, { realm: REALM })
  const outcomes = async (options?: { dryRun?: boolean }) =>
    (await host.takeBack(sales, options)).map(({ Entity, Outcome, Reason }) =>
      [Entity, Outcome, Reason ?? ''].join(' ').trim(),
    )
  const writes = () => company.calls.filter(({ method }) => method === 'POST').length

  it('deletes a payment before its invoice, and makes the customer inactive', async () => {
    await sell('1')
    expect(await outcomes()).toEqual(['Customer inactivated', 'Invoice deleted', 'Payment deleted'])
    expect(await outcomes()).toEqual([
      'Customer left gone',
      'Invoice left gone',
      'Payment left gone',
    ])
  })

  it('takes back the objects of two companies, which have the same ids', async () => {
    const other = await host.company('43')
    await sell('1')
    await host.run(sales, '2', { name: 'Ada', paid: true }, { realm: '43' })
    const objects = await host.takeBack(sales)
    expect(
      objects.map(({ Realm, Entity, Outcome }) => `${Realm} ${Entity} ${Outcome}`).toSorted(),
    ).toEqual(
      ['42', '43'].flatMap((realm) => [
        `${realm} Customer inactivated`,
        `${realm} Invoice deleted`,
        `${realm} Payment deleted`,
      ]),
    )
    expect(other.calls.filter(({ method }) => method === 'POST')).toHaveLength(6)
  })

  it('a dry run says the same and changes nothing', async () => {
    await sell('1')
    const before = writes()
    expect(await outcomes({ dryRun: true })).toEqual([
      'Customer inactivated',
      'Invoice deleted',
      'Payment deleted',
    ])
    expect(writes()).toBe(before)
  })

  it('leaves what a person has changed, and names the fields', async () => {
    const run = await sell('1', { paid: false })
    await company.edit([
      {
        entity: 'Invoice',
        id: run.data('invoice') as string,
        change: { Line: [{ Amount: 60, DetailType: 'SalesItemLineDetail' }] },
      },
    ])
    const objects = await host.takeBack(sales)
    expect(objects).toMatchObject([
      { Entity: 'Customer', Outcome: 'inactivated' },
      { Entity: 'Invoice', Outcome: 'left', Reason: 'changed_outside' },
    ])
    expect(objects[1]?.Fields).not.toEqual([])
  })

  it('takes back the objects of all runs of a transaction, and of a failed run', async () => {
    const run = await sell('1', { paid: false, fails: true })
    expect(run.status).toBe('Failed')
    expect(await outcomes()).toEqual(['Customer inactivated', 'Invoice deleted'])
  })

  it('leaves an invoice with a payment that no run has created, and what lies in a closed period', async () => {
    const run = await sell('1', { paid: false })
    const linked = { TxnId: run.data('invoice') as string, TxnType: 'Invoice' }
    const customer = { CustomerRef: { value: run.data('customer') as string } }
    await company.books([
      { Payment: { ...customer, TotalAmt: 50, Line: [{ Amount: 50, LinkedTxn: [linked] }] } },
    ])
    expect(await outcomes()).toContain('Invoice left paid')
    await sell('2', { paid: false })
    const BookCloseDate = '2099-12-31'
    await company.edit([
      { entity: 'Preferences', change: { AccountingInfoPrefs: { BookCloseDate } } },
    ])
    expect(await outcomes()).toContain('Invoice left books_closed')
  })

  describe('a credit memo', () => {
    const line = { Amount: 50, DetailType: 'SalesItemLineDetail' }
    const applying = (invoice: string, credit: string) => ({
      TotalAmt: 0,
      Line: [
        { Amount: 50, LinkedTxn: [{ TxnId: invoice, TxnType: 'Invoice' }] },
        { Amount: 50, LinkedTxn: [{ TxnId: credit, TxnType: 'CreditMemo' }] },
      ],
    })
    /** Creates an invoice and a credit memo, and with `pays` a payment that applies one to the other. */
    const credits = defineProcess('Credits', { input: z.boolean() })
      .step('invoice', (step) =>
        step.execute(post(step, 'invoice', { Line: [line] }), {
          ...credentialOf(step),
          parse: idOf('Invoice'),
        }),
      )
      .step('credit', (step) =>
        step.execute(post(step, 'creditmemo', { Line: [line] }), {
          ...credentialOf(step),
          parse: idOf('CreditMemo'),
        }),
      )
      .step('payment', (step) =>
        step.initialData
          ? step.execute(
              post(step, 'payment', applying(step.item('invoice').data, step.previous.data)),
              credentialOf(step),
            )
          : step.complete(),
      )
    const taken = async (of: TestHost, dryRun: boolean) =>
      (await of.takeBack(credits, { dryRun })).map(({ Entity, Outcome }) => `${Entity} ${Outcome}`)

    it('is deleted after the payment that uses it', async () => {
      await using another = await startTestHost({ processes: credits })
      await another.company(REALM)
      await another.run(credits, '1', true, { realm: REALM })
      const all = ['CreditMemo deleted', 'Invoice deleted', 'Payment deleted']
      expect(await taken(another, true)).toEqual(all)
      expect(await taken(another, false)).toEqual(all)
    })

    it('is left if a payment that no run has created uses it, and a dry run says so', async () => {
      await using another = await startTestHost({ processes: credits })
      const books = await another.company(REALM)
      const run = await another.run(credits, '1', false, { realm: REALM })
      await books.books([
        { Payment: applying(run.data('invoice') as string, run.data('credit') as string) },
      ])
      for (const dryRun of [true, false])
        expect(await taken(another, dryRun)).toEqual(['CreditMemo left', 'Invoice left'])
    })
  })

  it('leaves and lists the objects of a transaction whose run is active', async () => {
    const run = await sell('1', { paid: false, fails: true })
    await run.replay({ fromStep: 'payment' })
    host.kill('before commit', 'invoice')
    const other = await sell('2')
    expect(other.status).toBe('Running')
    expect(await outcomes()).toEqual([
      'Customer inactivated',
      'Customer left run_active',
      'Invoice deleted',
    ])
  })

  it('leaves and lists the object of a run that is in doubt, also in a dry run', async () => {
    const unsure = defineProcess('Unsure').step('customer', (step) =>
      step.execute(post(step, 'customer', { DisplayName: 'Grace' }), {
        ...credentialOf(step),
        parse: () => {
          throw new Error('not as expected')
        },
      }),
    )
    await using another = await startTestHost({ processes: unsure })
    const books = await another.company(REALM)
    const run = await another.run(unsure, '1', null, { realm: REALM })
    expect([run.status, run.isInDoubt]).toEqual(['Failed', true])
    for (const dryRun of [true, false])
      expect(await another.takeBack(unsure, { dryRun })).toMatchObject([
        { Entity: 'Customer', Outcome: 'left', Reason: 'run_in_doubt' },
      ])
    expect(books.calls).toHaveLength(1)
  })

  it.each(['before request', 'after request', 'before commit', 'after commit'] as const)(
    'a worker that is killed %s removes each object once',
    async (point) => {
      await sell('1')
      host.kill(point, 'remove')
      expect(await outcomes()).toEqual([
        'Customer inactivated',
        'Invoice deleted',
        'Payment deleted',
      ])
    },
  )
})
