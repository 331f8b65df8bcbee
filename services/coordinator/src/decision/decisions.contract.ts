import type { ActionPage } from '@integration-host/shared/contracts/operations'
import { DECISION_LINK, DecisionLink } from '@integration-host/shared/contracts/decision'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { bearer, type Fixture, onBackends } from '../../test-support/fixture.ts'
import { installation } from '../records/installation.ts'
import { defineProcess } from '../step/define-process.ts'

const MARKUP = '<script>alert(1)</script> & "quotes"'

/** A bill that is paid after a person has approved it. The draft of the bill 0 takes some time. */
const payBill = defineProcess('PayBill', { input: z.object({ amount: z.number() }) })
  .step('draft', (step) => {
    if (step.initialData.amount === 0) return step.waitFor(3_600_000)
    return step.complete({
      secret: 'not for the page',
      link: step.linkTo('approved', { for: 'ada@example.com' }),
    })
  })
  .event('approved', {
    data: z.object({ approved: z.boolean(), note: z.string().max(20).optional() }),
    timeoutSeconds: 86_400,
    ask: (step) => ({
      title: `Pay ${step.initialData.amount}?`,
      facts: { Bill: MARKUP, Urgent: true, Discount: null },
    }),
  })
  .step('pay', (step) => step.complete(step.previous.data))
  .event('end')
/** A decision with more than two choices, and without a note in the data. */
const ship = defineProcess('Ship').event('how', {
  data: z.object({ by: z.enum(['air', 'sea', 'road']) }),
  choices: 'by',
  ask: () => ({ title: 'How?' }),
})
/** A decision that must have a note. */
const close = defineProcess('Close').event('done', {
  data: z.object({ ok: z.boolean(), note: z.string().max(20) }),
  ask: () => ({ title: 'Done?' }),
})

const keys = [
  { id: 'approver', scopes: ['transactions:signal'], realms: ['42'] },
  { id: 'queuer', scopes: ['transactions:queue', 'transactions:operate'] },
]

/** Tests of decisions by persons, from the link to the run. All backends must pass these tests. */
export function decisionsContract(kind: 'embedded' | 'real'): void {
  describe(`decisions on ${kind} backends`, () => {
    const opened = onBackends(
      kind,
      { PayBill: [...payBill.stepNames], Ship: ['how'], Close: ['done'] },
      { processes: [payBill, ship, close], keys },
    )
    const { start } = opened
    const post = (host: Fixture, path: string, body: object = {}, key?: string) =>
      host.call(`/processes/${path}`, postJson(body, key === undefined ? {} : bearer(key)))
    const linksOf = (id: string, name = 'approved') =>
      `PayBill/transactions/${id}/events/${name}/links`
    const linkFor = async (host: Fixture, id: string, person: string): Promise<string> => {
      const response = await post(host, linksOf(id), { For: person })
      expect(response.status).toBe(201)
      return DecisionLink.parse(await response.json()).Url
    }
    /** Requests the page as a browser does: without a key. */
    const read = async (response: Promise<Response>) => {
      const { status, headers } = await response
      return { status, headers, text: await (await response).text() }
    }
    const look = (url: string) => read(fetch(url))
    const decide = (url: string, choice: string, note = '') =>
      read(fetch(url, { method: 'POST', body: new URLSearchParams({ choice, note }) }))
    const waiting = async (host: Fixture, id = '1'): Promise<void> => {
      await host.queue(id, { amount: 5 }, '42')
      await host.reached(id, 'Waiting')
    }
    const eventOf = async (host: Fixture, id = '1') =>
      (await host.run(id)).Items.find(({ StepName }) => StepName === 'approved')

    it('a person sees title and facts, decides once, and the run goes on with the decision', async () => {
      const host = await start()
      await waiting(host)
      const url = await linkFor(host, '1', 'ada@example.com')
      const page = await look(url)
      expect(page.status).toBe(200)
      expect(page.text).toContain('<h1>Pay 5?</h1>')
      expect(page.text).toContain('&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quotes&quot;')
      expect(page.text).not.toContain('<script')
      expect(page.text).not.toContain('not for the page')
      expect(page.text.match(/<button[^>]*>/g)).toEqual([
        '<button name="choice" value="true">',
        '<button name="choice" value="false">',
      ])
      // A GET changes nothing.
      await look(url)
      expect(await host.run('1')).toMatchObject({ WaitingFor: 'event:approved' })

      const decided = await decide(url, 'true', 'as agreed')
      expect(decided.status).toBe(200)
      expect(decided.text).toMatch(
        /ada@example\.com has chosen “Yes” on <time[^>]*>\d{4}-\d\d-\d\d at/,
      )
      await expect.poll(() => host.run('1')).toMatchObject({ WaitingFor: 'event:end' })
      expect(await eventOf(host)).toMatchObject({
        Status: 'Completed',
        Data: { approved: true, note: 'as agreed' },
        Ask: { title: 'Pay 5?', facts: { Urgent: true } },
        Sender: { KeyID: DECISION_LINK, Person: 'ada@example.com' },
      })
      expect((await look(url)).text).toContain('ada@example.com has chosen “Yes”')
      // The form was sent twice, and then with another choice.
      expect((await decide(url, 'true')).status).toBe(200)
      const other = await decide(url, 'false')
      expect(other.status).toBe(409)
      expect(other.text).toContain('has chosen “Yes”')

      const log = (await (await host.call('/actions?process=PayBill&id=1')).json()) as ActionPage
      expect(
        log.items.map(({ Action, KeyID, Person, Reason }) => [Action, KeyID, Person, Reason]),
      ).toEqual(
        expect.arrayContaining([
          ['signal', DECISION_LINK, 'ada@example.com', null],
          ['link', expect.any(String), null, 'for ada@example.com'],
        ]),
      )
      const token = url.slice(url.lastIndexOf('/') + 1)
      expect(JSON.stringify(host.log)).not.toContain(token)
    })

    it('of two people who open their pages at once, one decides, and the other is told', async () => {
      const host = await start()
      await waiting(host)
      const urls = [
        await linkFor(host, '1', 'Ada Lovelace'),
        await linkFor(host, '1', 'bob@example.com'),
      ]
      const results = await Promise.all(urls.map((url) => decide(url, 'true')))
      expect(results.map(({ status }) => status)).toEqual(expect.arrayContaining([200, 409]))
      const first = (await eventOf(host))?.Sender?.Person
      const late = results.find(({ status }) => status === 409)
      expect(late?.text).toContain(`${first} has chosen “Yes”`)
      expect(late?.text).toContain('Your decision came later')
    })

    it('a step gets an address, and sends it before the run gets to the event', async () => {
      const host = await start()
      await host.queue('1', { amount: 0 }, '42')
      await host.reached('1', 'Retrying')
      const early = await linkFor(host, '1', 'ada@example.com')
      expect(await look(early)).toMatchObject({
        status: 200,
        text: expect.stringContaining('Not yet'),
      })
      expect((await decide(early, 'true')).status).toBe(409)
      await waiting(host, '2')
      const [draft] = (await host.run('2')).Items
      const { link } = z.object({ link: z.url() }).parse(draft?.Data)
      expect((await decide(link, 'false')).text).toContain('ada@example.com has chosen “No”')
      expect(await eventOf(host, '2')).toMatchObject({ Data: { approved: false } })
    })

    it('a decision that came from the API is shown, and a link cannot change it', async () => {
      const host = await start()
      await waiting(host)
      const url = await linkFor(host, '1', 'ada@example.com')
      await post(
        host,
        'PayBill/transactions/1/events/approved',
        { Data: { approved: false } },
        'approver',
      )
      const late = await decide(url, 'true')
      expect(late).toMatchObject({
        status: 409,
        text: expect.stringContaining('approver has chosen “No”'),
      })
    })

    it('an address is void if it was changed or has expired, and if the run is over or was replayed', async () => {
      const host = await start()
      await waiting(host)
      const url = await linkFor(host, '1', 'ada@example.com')
      const at = url.length - 20
      const changed = url.slice(0, at) + (url[at] === 'A' ? 'B' : 'A') + url.slice(at + 1)
      for (const wrong of [changed, `${url}x`, url.slice(0, -30), `${host.url}/decisions/x`])
        expect((await decide(wrong, 'true')).status, wrong).toBe(410)
      const short = await post(host, linksOf('1'), { For: 'ada', ExpiresInSeconds: 1 })
      const { Url, ExpiresAt } = DecisionLink.parse(await short.json())
      await expect.poll(() => Date.now() > Date.parse(ExpiresAt), { timeout: 5_000 }).toBe(true)
      expect(await look(Url)).toMatchObject({
        status: 410,
        text: expect.stringContaining('it has expired'),
      })

      await post(host, 'PayBill/transactions/1/cancel')
      expect(await decide(url, 'true')).toMatchObject({
        status: 410,
        text: expect.stringContaining('has ended'),
      })
      expect((await post(host, linksOf('1'), { For: 'ada' })).status).toBe(409)
      await post(host, 'PayBill/transactions/1/resume')
      await host.reached('1', 'Waiting')
      expect((await look(url)).status).toBe(200)
      await post(host, 'PayBill/transactions/1/cancel')
      await post(host, 'PayBill/transactions/1/replays')
      await host.reached('1', 'Waiting', 1)
      expect(await decide(url, 'true')).toMatchObject({
        status: 410,
        text: expect.stringContaining('started again'),
      })
      expect(await host.run('1', 1)).toMatchObject({ WaitingFor: 'event:approved' })
    })

    it('the key is generated once for the installation, and is encrypted if payloads are', async () => {
      const keyNamed = (id: string, byte: number) =>
        `${id}:${Buffer.alloc(32, byte).toString('base64')}`
      const storedKey = async (host: Fixture) => {
        const rows = installation<{ readonly Key: string }>('DecisionKey')
        const [row] = await host.source.records(rows).rows('DecisionKey')
        return row?.Value
      }
      const first = await start({ env: { PAYLOAD_KEYS: keyNamed('k1', 1) } })
      await waiting(first)
      const url = await linkFor(first, '1', 'ada@example.com')
      const sealed = (id: string) => ({
        IsSealed: true,
        Key: expect.stringMatching(RegExp(`^1\\.${id}\\.`)),
      })
      expect(await storedKey(first)).toEqual(sealed('k1'))
      await first[Symbol.asyncDispose]()
      // After a rotation, the key is encrypted again at the start, so that the old payload key is no longer needed.
      const both = `${keyNamed('k2', 2)},${keyNamed('k1', 1)}`
      const second = await start({ env: { PAYLOAD_KEYS: both } })
      await expect.poll(() => storedKey(second)).toEqual(sealed('k2'))
      const moved = second.url + new URL(url).pathname
      expect((await look(moved)).text).toContain('Pay 5?')
    })

    it('the choices are those of an enum; a note may be required, and is the reason if the data has no place for it', async () => {
      const host = await start()
      const begin = async (process: string, event: string) => {
        const path = `${process}/transactions/1`
        await post(host, `${process}/transactions`, { TransactionID: '1', InitialData: null })
        const get = async () => (await host.call(`/processes/${path}`)).json()
        await expect.poll(get).toMatchObject({ Status: 'Waiting' })
        const request = { For: 'ada', Reason: 'it is her turn' }
        const created = await post(host, `${path}/events/${event}/links`, request)
        return { get, Url: DecisionLink.parse(await created.json()).Url }
      }
      const { get, Url } = await begin('Ship', 'how')
      expect((await look(Url)).text.match(/<button[^>]*>\w+/g)).toHaveLength(3)
      expect(await decide(Url, 'rail')).toMatchObject({
        status: 400,
        text: expect.stringContaining('Choose one'),
      })
      expect((await decide(Url, 'sea', 'it is\ncheaper')).text).toContain('ada has chosen “sea”')
      await expect.poll(get).toMatchObject({
        Status: 'Completed',
        Items: [{ Data: { by: 'sea' }, Sender: { Person: 'ada', Reason: 'it is cheaper' } }],
      })
      const closing = await begin('Close', 'done')
      expect(await decide(closing.Url, 'true')).toMatchObject({
        status: 400,
        text: expect.stringContaining('Write a note'),
      })
      await decide(closing.Url, 'true', 'all paid')
      expect(await closing.get()).toMatchObject({ Items: [{ Data: { note: 'all paid' } }] })
    })

    it('the erasure of a company can end its waits, and leaves those of other companies', async () => {
      const host = await start()
      await waiting(host)
      await host.queue('2', { amount: 5 }, '43')
      await host.queue('3', { amount: 0 }, '42')
      await host.reached('2', 'Waiting')
      await host.reached('3', 'Retrying')
      const erase = async (body: object) => {
        const response = await host.call('/erasures', postJson(body))
        return response.json()
      }
      expect(await erase({ Realm: '42' })).toMatchObject({ erased: 0, notEnded: 2 })
      const ended = await erase({ Realm: '42', CancelWaiting: true, Reason: 'case 7' })
      expect(ended).toMatchObject({ erased: 1, notEnded: 1, more: false })
      expect(await host.run('1')).toMatchObject({ Status: 'Cancelled', InitialData: null })
      expect(await eventOf(host)).not.toHaveProperty('Ask')
      expect(await host.run('2')).toMatchObject({ Status: 'Waiting' })
      const ids = { Process: 'PayBill', Ids: ['2'], CancelWaiting: true }
      expect(await erase(ids)).toMatchObject({ code: 'invalid_request' })
    })

    it('a link is rejected for an unknown event, a run of another company, a key without the scope, and a wrong body', async () => {
      const host = await start()
      await waiting(host)
      await host.queue('2', { amount: 5 }, '43')
      const For = 'ada@example.com'
      const rejected = async (path: string, body: object, key?: string) => {
        const response = await post(host, path, body, key)
        return [response.status, ((await response.json()) as { code: string }).code]
      }
      expect(await rejected(linksOf('1', 'draft'), { For })).toEqual([404, 'event_not_found'])
      expect(await rejected(linksOf('1', 'end'), { For })).toEqual([404, 'event_not_found'])
      expect(await rejected(linksOf('9'), { For })).toEqual([404, 'transaction_not_found'])
      expect(await rejected(linksOf('1'), { For }, 'queuer')).toEqual([403, 'forbidden'])
      expect(await rejected(linksOf('2'), { For }, 'approver')).toEqual([403, 'forbidden'])
      for (const body of [
        {},
        { For: '' },
        { For: ' ada' },
        { For: 'a\u202Eb' },
        { For: 'x'.repeat(101) },
        { For, ExpiresInSeconds: 0 },
      ])
        expect(await rejected(linksOf('1'), body), JSON.stringify(body)).toEqual([
          400,
          'invalid_request',
        ])
      const long = await post(host, linksOf('1'), { For, ExpiresInSeconds: 30_000_000 }, 'approver')
      const { ExpiresAt } = DecisionLink.parse(await long.json())
      expect(Date.parse(ExpiresAt) - Date.now()).toBeLessThanOrEqual(86_400_000)
    })

    it('the page says who asks, cannot be framed or cached, sends no referrer, and rejects a note or a form that is too long', async () => {
      const host = await start({
        env: {
          PRODUCT_NAME: 'Ledger <One>',
          PRODUCT_LOGO: 'https://static.example.com/logo.svg',
          PRODUCT_SUPPORT: 'help@example.com',
          DECISIONS_URL: 'https://decide.example.com/base',
        },
      })
      await waiting(host)
      const address = await linkFor(host, '1', 'ada@example.com')
      expect(address).toMatch(/^https:\/\/decide\.example\.com\/base\/decisions\//)
      const url = host.url + new URL(address).pathname.slice('/base'.length)
      const { headers, text } = await look(url)
      expect(headers.get('content-security-policy')).toMatch(
        /^default-src 'none'; style-src 'sha256-.*'; form-action 'self'; base-uri 'none'; frame-ancestors 'none';.*; img-src https:\/\/static\.example\.com\/logo\.svg$/,
      )
      expect(headers.get('cache-control')).toBe('no-store')
      expect(headers.get('referrer-policy')).toBe('no-referrer')
      // The pages say who asks, also one whose address cannot be used.
      const other = await look(`${url}x`)
      expect(other.text).toContain('This address cannot be used')
      for (const page of [text, other.text]) {
        expect(page).toContain('Ledger &lt;One&gt;')
        expect(page).toContain('<img src="https://static.example.com/logo.svg"')
        expect(page).toContain('<a href="mailto:help@example.com">help@example.com</a>')
      }
      const long = await decide(url, 'true', 'longer than twenty characters')
      expect(long).toMatchObject({
        status: 400,
        text: expect.stringContaining('The note is not accepted'),
      })
      expect(long.text).toContain('>longer than twenty characters</textarea>')
      expect((await decide(url, 'true', 'x'.repeat(40_000))).status).toBe(413)
      expect((await fetch(url, { method: 'PUT' })).status).toBe(405)
      expect(await host.run('1')).toMatchObject({ WaitingFor: 'event:approved' })
    })
  })
}
