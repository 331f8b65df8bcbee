import { beforeEach, describe, expect, it } from 'vitest'
import { REALM, type Tokens, useProvider } from '../../test-support/provider-fixture.ts'

const provider = useProvider()
let accessToken: string
beforeEach(async () => {
  accessToken = (await provider.tokens()).access_token
})

const queryPath = (statement: string, realm = REALM) =>
  `/v3/company/${realm}/query?query=${encodeURIComponent(statement)}&minorversion=75`

describe('queries for CompanyInfo', () => {
  it.each([
    'select * from CompanyInfo',
    'SELECT * FROM companyinfo',
    '  select\t*\n from   COMPANYINFO ',
  ])(
    'the accounting API returns CompanyInfo in Intuit’s format for the statement %j',
    async (statement) => {
      const answer = await provider.api(queryPath(statement), accessToken)
      expect(answer.status).toBe(200)
      expect(await answer.json()).toMatchObject({
        QueryResponse: {
          CompanyInfo: [
            { CompanyName: 'Northwind Trading', Id: '1', domain: 'QBO', sparse: false },
          ],
          maxResults: 1,
        },
        time: expect.any(String),
      })
    },
  )

  it('the accounting API accepts a query statement in the text body of a POST request', async () => {
    const answer = await provider.api(`/v3/company/${REALM}/query`, accessToken, {
      method: 'POST',
      body: 'select * from CompanyInfo',
    })
    expect(await answer.json()).toHaveProperty('QueryResponse.CompanyInfo')
  })

  it('the accounting API returns the CompanyInfo object of a company at the path of its id', async () => {
    const answer = await provider.api(`/v3/company/${REALM}/companyinfo/${REALM}`, accessToken)
    expect(await answer.json()).toMatchObject({ CompanyInfo: { CompanyName: 'Northwind Trading' } })
  })

  it.each([
    '',
    'select * from Companies',
    "select * from Customer where DisplayName = 'x' or Id = '1'",
    'select DisplayName, * from Customer',
    'select * from CompanyInfo; drop table x',
    ' '.repeat(3_000),
  ])(
    'the accounting API rejects the unsupported statement %j with a ValidationFault',
    async (statement) => {
      const answer = await provider.api(queryPath(statement), accessToken)
      expect(answer.status).toBe(400)
      expect(await answer.json()).toMatchObject({
        Fault: {
          Error: [{ Message: 'Error parsing query', code: '4000' }],
          type: 'ValidationFault',
        },
      })
    },
  )

  it('the accounting API ignores a slash after the id of an object', async () => {
    const path = `/v3/company/${REALM}`
    const [bare, slash] = await Promise.all(
      ['', '/'].map(async (end) => {
        const answer = await provider.api(`${path}/companyinfo/${REALM}${end}`, accessToken)
        return ((await answer.json()) as { CompanyInfo: unknown }).CompanyInfo
      }),
    )
    expect(slash).toEqual(bare)
    const made = await provider.api(`${path}/customer`, accessToken, {
      method: 'POST',
      body: '{"DisplayName":"A"}',
    })
    const { Customer } = (await made.json()) as { Customer: { Id: string } }
    const found = await provider.api(`${path}/customer/${Customer.Id}/`, accessToken)
    expect(await found.json()).toMatchObject({ Customer })
    const missing = await provider.api(`${path}/customer/999999/`, accessToken)
    expect(missing.status).toBe(400)
  })

  it('the accounting API rejects an unsupported operation with a ValidationFault', async () => {
    const answer = await provider.api(`/v3/company/${REALM}/reports/x/y`, accessToken)
    expect(answer.status).toBe(400)
    expect(await answer.json()).toHaveProperty('Fault.Error.0.Message', 'Unsupported Operation')
  })
})

describe('authorization of accounting API calls', () => {
  const failed401 = {
    fault: {
      error: [
        { code: '3200', message: 'message=AuthenticationFailed; errorCode=003200; statusCode=401' },
      ],
      type: 'AUTHENTICATION',
    },
  }

  it('the accounting API responds with 401 to a call without an access token', async () => {
    const answer = await fetch(provider.url + queryPath('select * from CompanyInfo'), {
      headers: { Accept: 'application/json' },
    })
    expect(answer.status).toBe(401)
    expect(answer.headers.get('WWW-Authenticate')).toContain('invalid_token')
    expect(await answer.json()).toMatchObject(failed401)
  })

  it('the accounting API responds with 401 to a call with an unknown access token', async () => {
    const answer = await provider.api(queryPath('select * from CompanyInfo'), 'guessed')
    expect([answer.status, await answer.json()]).toMatchObject([401, failed401])
  })

  it('the accounting API responds with 401 to a call with an expired access token, and counts the call', async () => {
    provider.moveTime(3_600_000)
    const answer = await provider.api(queryPath('select * from CompanyInfo'), accessToken)
    expect([answer.status, await answer.json()]).toMatchObject([401, failed401])
    expect((await provider.counters()).realms[REALM]).toMatchObject({
      apiCalls: 1,
      apiUnauthorized: 1,
    })
  })

  it('the accounting API responds with 403 to a call with the access token of another company', async () => {
    const answer = await provider.api(
      queryPath('select * from CompanyInfo', '4620816365291'),
      accessToken,
    )
    expect(answer.status).toBe(403)
    expect(await answer.json()).toMatchObject({ fault: { error: [{ code: '3100' }] } })
  })

  it('the accounting API responds with 403 to a call with an access token that lacks the accounting scope', async () => {
    const code = await provider.code(REALM, { scope: 'openid' })
    const tokens = (await (await provider.exchange(code)).json()) as Tokens
    const answer = await provider.api(queryPath('select * from CompanyInfo'), tokens.access_token)
    expect(answer.status).toBe(403)
  })
})

describe('entity creation in the accounting API', () => {
  const post = (requestId: string | null, body: string) =>
    provider.api(
      `/v3/company/${REALM}/invoice${requestId === null ? '' : `?requestid=${requestId}`}`,
      accessToken,
      { method: 'POST', body },
    )

  it('the response to the creation of an entity contains the members that the accounting API adds', async () => {
    const answer = await post(null, '{"DocNumber":"1001"}')
    expect(await answer.json()).toMatchObject({
      Invoice: { DocNumber: '1001', Id: '1', SyncToken: '0', domain: 'QBO' },
    })
  })

  it('the accounting API returns the first response for a repeated requestid and creates no second entity', async () => {
    const first = await (await post('r1', '{"DocNumber":"1"}')).text()
    provider.moveTime(1_000)
    expect(await (await post('r1', '{"DocNumber":"2"}')).text()).toBe(first)
    expect(await (await post('r2', '{}')).json()).toMatchObject({ Invoice: { Id: '2' } })
    expect((await provider.counters()).realms[REALM]).toMatchObject({
      entitiesCreated: 2,
      playedBack: 1,
    })
  })

  it.each(['', '[]', 'null', '"text"', '{'])(
    'the accounting API rejects the creation of an entity with the invalid body %j',
    async (body) => {
      const answer = await post('r1', body)
      expect(answer.status).toBe(400)
      expect(await answer.json()).toHaveProperty('Fault.type', 'ValidationFault')
      expect((await provider.counters()).realms[REALM]).toMatchObject({ entitiesCreated: 0 })
    },
  )

  it('the accounting API stores a member named __proto__ of a body like any other member', async () => {
    const answer = await post(null, '{"__proto__":{"polluted":1}}')
    expect(answer.status).toBe(200)
    expect(({} as { polluted?: number }).polluted).toBeUndefined()
  })
})

describe('entities posted to the accounting API', () => {
  const at = (path: string) => `/v3/company/${REALM}/${path}`
  const post = (entity: string, body: object) =>
    provider.api(at(entity), accessToken, { method: 'POST', body: JSON.stringify(body) })
  const get = async (path: string) => {
    const response = await provider.api(at(path), accessToken)
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }
  const faultOf = async (response: Response) => ({
    status: response.status,
    ...((await response.json()) as { Fault: { Error: { code: string }[] } }).Fault.Error[0],
  })

  it('the accounting API returns a posted entity by id only to requests for the same company and kind of entity', async () => {
    await post('salesreceipt', { DocNumber: '1' })
    expect(await get('salesreceipt/1')).toMatchObject({
      status: 200,
      body: { SalesReceipt: { Id: '1', DocNumber: '1' }, time: expect.any(String) },
    })
    for (const path of ['salesreceipt/2', 'invoice/1']) {
      expect(await get(path)).toMatchObject({
        status: 400,
        body: {
          Fault: { Error: [{ Message: 'Object Not Found', code: '610' }], type: 'ValidationFault' },
        },
      })
    }
  })

  it('the accounting API accepts a full or a sparse update of an entity with the current SyncToken', async () => {
    await post('invoice', { DocNumber: '1', PrivateNote: 'a' })
    const sparse = { Id: '1', SyncToken: '0', sparse: true, PrivateNote: 'b' }
    expect(await (await post('invoice', sparse)).json()).toMatchObject({
      Invoice: { Id: '1', SyncToken: '1', DocNumber: '1', PrivateNote: 'b', sparse: false },
    })
    const whole = { Id: '1', SyncToken: '1', DocNumber: '2' }
    expect(await (await post('invoice', whole)).json()).toMatchObject({
      Invoice: { Id: '1', SyncToken: '2', DocNumber: '2' },
    })
    expect((await get('invoice/1')).body['Invoice']).not.toHaveProperty('PrivateNote')
    expect((await provider.counters()).realms[REALM]).toMatchObject({ entitiesCreated: 1 })
  })

  it.each([
    ['a previous SyncToken', { Id: '1', SyncToken: '0' }, '5010'],
    ['no SyncToken', { Id: '1' }, '2020'],
    ['an unknown id', { Id: '9', SyncToken: '0' }, '610'],
  ])('the accounting API rejects an update with %s', async (_, body, code) => {
    await post('invoice', {})
    await post('invoice', { Id: '1', SyncToken: '0', DocNumber: 'kept' })
    expect(await faultOf(await post('invoice', body))).toMatchObject({ status: 400, code })
    expect(await get('invoice/1')).toMatchObject({
      body: { Invoice: { SyncToken: '1', DocNumber: 'kept' } },
    })
  })

  it('the accounting API deletes an entity', async () => {
    await post('invoice', {})
    const deleted = await post('invoice?operation=delete', { Id: '1', SyncToken: '0' })
    expect(await deleted.json()).toMatchObject({ Invoice: { status: 'Deleted', Id: '1' } })
    expect(await get('invoice/1')).toMatchObject({ status: 400 })
  })

  it.each<[string, object, string, object]>([
    ['customer', { DisplayName: 'Tea & Sons' }, 'customer', { DisplayName: 'tea & sons' }],
    ['customer', { DisplayName: 'Tea & Sons' }, 'vendor', { DisplayName: 'Tea & Sons ' }],
    ['item', { Name: 'Tea' }, 'item', { Name: 'Tea' }],
  ])(
    'if a %s with %j exists, the accounting API rejects a %s with %j because of the duplicate name',
    async (kind, first, other, second) => {
      expect((await post(kind, first)).status).toBe(200)
      expect(await faultOf(await post(other, second))).toMatchObject({
        status: 400,
        code: '6240',
        Message: 'Duplicate Name Exists Error',
      })
      expect((await provider.counters()).realms[REALM]).toMatchObject({ entitiesCreated: 1 })
    },
  )

  it('the accounting API rejects an update that gives an entity the name of another entity', async () => {
    await post('customer', { DisplayName: 'A' })
    await post('customer', { DisplayName: 'B' })
    const same = await post('customer', { Id: '1', SyncToken: '0', DisplayName: 'A' })
    expect(same.status).toBe(200)
    const taken = await post('customer', { Id: '1', SyncToken: '1', DisplayName: 'b' })
    expect(await faultOf(taken)).toMatchObject({ code: '6240' })
  })

  it('the accounting API accepts a request with the requestid of an earlier request that was rejected', async () => {
    await post('customer', { DisplayName: 'A' })
    expect((await post('customer?requestid=r', { DisplayName: 'A' })).status).toBe(400)
    expect((await post('customer?requestid=r', { DisplayName: 'B' })).status).toBe(200)
    const tooLong = await post(`customer?requestid=${'r'.repeat(51)}`, { DisplayName: 'C' })
    expect(await faultOf(tooLong)).toMatchObject({ status: 400, code: '2130' })
  })

  it('posted entities can be listed, paged and counted with queries', async () => {
    for (const DocNumber of ['1', '2', '3']) await post('invoice', { DocNumber })
    const queried = async (statement: string) =>
      (await (await provider.api(queryPath(statement), accessToken)).json()) as object
    expect(await queried('select * from Invoice')).toMatchObject({
      QueryResponse: {
        Invoice: [{ DocNumber: '1' }, { DocNumber: '2' }, { DocNumber: '3' }],
        startPosition: 1,
        maxResults: 3,
      },
    })
    expect(await queried('select * from Invoice startposition 2 maxresults 1')).toMatchObject({
      QueryResponse: { Invoice: [{ DocNumber: '2' }], startPosition: 2, maxResults: 1 },
    })
    expect(await queried('select count(*) from Invoice')).toMatchObject({
      QueryResponse: { totalCount: 3 },
    })
    expect(await queried('select * from Bill')).toMatchObject({ QueryResponse: {} })
  })
})

describe('error bodies of the accounting API', () => {
  const errorTo = async (accept: string | null, token = accessToken) => {
    const response = await fetch(`${provider.url}/v3/company/${REALM}/invoice/9`, {
      headers: { Authorization: `Bearer ${token}`, ...(accept !== null && { Accept: accept }) },
    })
    return [response.headers.get('Content-Type'), await response.text()] as const
  }

  it.each([null, '*/*', 'text/plain'])(
    'the accounting API sends an error body as XML if the Accept header is %s',
    async (accept) => {
      const [contentType, body] = await errorTo(accept)
      expect(contentType).toBe('application/xml')
      expect(body).toMatch(
        /^<\?xml version="1\.0" encoding="UTF-8" standalone="yes"\?><IntuitResponse xmlns="http:\/\/schema\.intuit\.com\/finance\/v3" time="[^"]+"><Fault type="ValidationFault"><Error code="610" element=""><Message>Object Not Found<\/Message><Detail>Object Not Found : /,
      )
    },
  )

  it.each(['application/json', 'text/html, application/JSON;q=0.5'])(
    'the accounting API sends an error body as JSON if the Accept header is %s',
    async (accept) => {
      const [contentType, body] = await errorTo(accept)
      expect(contentType).toBe('application/json')
      expect(JSON.parse(body)).toMatchObject({ Fault: { Error: [{ code: '610' }] } })
    },
  )

  it.each([
    [
      'application/json',
      '{"warnings":null,"intuitObject":null,"fault":{"error":[{"message":"message=AuthenticationFailed',
    ],
    ['*/*', '<?xml'],
  ])(
    "for an unknown access token and the Accept header %s, the response has the error body of Intuit's API gateway",
    async (accept, start) => {
      const [, body] = await errorTo(accept, 'guessed')
      expect(body.startsWith(start)).toBe(true)
      expect(body).toContain('3200')
    },
  )
})

describe('clients that need XML', () => {
  const xml = '<Customer><DisplayName>A</DisplayName></Customer>'
  it.each(['application/xml', 'text/xml', 'application/xml;q=0.9, text/xml'])(
    'the accounting API rejects Accept: %s with 406 and one sentence, in XML',
    async (accept) => {
      const answer = await provider.api(queryPath('select * from CompanyInfo'), accessToken, {
        headers: { Accept: accept },
      })
      expect([answer.status, answer.headers.get('Content-Type')]).toEqual([406, 'application/xml'])
      expect(await answer.text()).toContain('The sandbox sends JSON only')
    },
  )

  it.each(['application/xml', 'text/xml; charset=utf-8'])(
    'the accounting API rejects a body of the type %s with 415 and stores nothing',
    async (type) => {
      const answer = await provider.api(`/v3/company/${REALM}/customer`, accessToken, {
        method: 'POST',
        headers: { 'Content-Type': type, Accept: 'application/json' },
        body: xml,
      })
      expect(answer.status).toBe(415)
      expect(await answer.json()).toMatchObject({
        Fault: { Error: [{ code: '415', Detail: expect.stringContaining('reads JSON only') }] },
      })
      expect((await provider.counters()).realms[REALM]).toMatchObject({ entitiesCreated: 0 })
    },
  )

  it.each([
    '*/*',
    'application/json, application/xml',
    'text/html, application/xml;q=0.9, */*;q=0.8',
  ])('the accounting API sends JSON if Accept is %s', async (accept) => {
    const answer = await provider.api(queryPath('select * from CompanyInfo'), accessToken, {
      headers: { Accept: accept },
    })
    expect(await answer.json()).toHaveProperty('QueryResponse')
  })

  it('the accounting API returns the preferences of a company by their path and by a query', async () => {
    const answer = await provider.api(`/v3/company/${REALM}/preferences`, accessToken)
    expect(await answer.clone().json()).toMatchObject({
      Preferences: { CurrencyPrefs: { HomeCurrency: { value: 'USD' } }, domain: 'QBO' },
    })
    const found = await provider.api(queryPath('select * from Preferences'), accessToken)
    const { Preferences } = (await answer.json()) as { Preferences: unknown }
    expect(await found.json()).toMatchObject({
      QueryResponse: { Preferences: [Preferences], startPosition: 1, maxResults: 1 },
    })
  })
})
