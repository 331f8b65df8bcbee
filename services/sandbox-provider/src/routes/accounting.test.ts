import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  type ProviderUnderTest,
  REALM,
  startProvider,
  type Tokens,
} from '../provider-under-test.ts'

let provider: ProviderUnderTest
let accessToken: string

beforeAll(async () => {
  provider = await startProvider()
})
beforeEach(async () => {
  await provider.sandbox('POST', 'reset')
  accessToken = (await provider.tokens()).access_token
})
afterAll(() => provider[Symbol.asyncDispose]())

const queryPath = (statement: string, realm = REALM) =>
  `/v3/company/${realm}/query?query=${encodeURIComponent(statement)}&minorversion=75`

describe('the query of CompanyInfo', () => {
  it.each([
    'select * from CompanyInfo',
    'SELECT * FROM companyinfo',
    '  select\t*\n from   COMPANYINFO ',
  ])('answers %j in the envelope of the real one', async (statement) => {
    const answer = await provider.api(queryPath(statement), accessToken)
    expect(answer.status).toBe(200)
    expect(await answer.json()).toMatchObject({
      QueryResponse: {
        CompanyInfo: [{ CompanyName: 'Northwind Trading', Id: '1', domain: 'QBO', sparse: false }],
        maxResults: 1,
      },
      time: expect.any(String),
    })
  })

  it('may come by POST as text', async () => {
    const answer = await provider.api(`/v3/company/${REALM}/query`, accessToken, {
      method: 'POST',
      body: 'select * from CompanyInfo',
    })
    expect(await answer.json()).toHaveProperty('QueryResponse.CompanyInfo')
  })

  it('answers the entity by id too', async () => {
    const answer = await provider.api(`/v3/company/${REALM}/companyinfo/${REALM}`, accessToken)
    expect(await answer.json()).toMatchObject({ CompanyInfo: { CompanyName: 'Northwind Trading' } })
  })

  it.each([
    '',
    'select * from Invoice',
    'select * from CompanyInfo; drop table x',
    ' '.repeat(3_000),
  ])('answers another one with a ValidationFault (%#)', async (statement) => {
    const answer = await provider.api(queryPath(statement), accessToken)
    expect(answer.status).toBe(400)
    expect(await answer.json()).toMatchObject({
      Fault: { Error: [{ Message: 'Error parsing query', code: '4000' }], type: 'ValidationFault' },
    })
  })

  it('answers an operation it does not have with a ValidationFault', async () => {
    const answer = await provider.api(`/v3/company/${REALM}/reports/x/y`, accessToken)
    expect(answer.status).toBe(400)
    expect(await answer.json()).toHaveProperty('Fault.Error.0.Message', 'Unsupported Operation')
  })
})

describe('a call of the accounting API', () => {
  const failed401 = {
    fault: {
      error: [
        { code: '3200', message: 'message=AuthenticationFailed; errorCode=003200; statusCode=401' },
      ],
      type: 'AUTHENTICATION',
    },
  }

  it('without a token is answered 401', async () => {
    const answer = await fetch(provider.url + queryPath('select * from CompanyInfo'))
    expect(answer.status).toBe(401)
    expect(answer.headers.get('WWW-Authenticate')).toContain('invalid_token')
    expect(await answer.json()).toMatchObject(failed401)
  })

  it('with an unknown token is answered 401', async () => {
    const answer = await provider.api(queryPath('select * from CompanyInfo'), 'guessed')
    expect([answer.status, await answer.json()]).toMatchObject([401, failed401])
  })

  it('with an expired token is answered 401, and counted', async () => {
    provider.moveTime(3_600_000)
    const answer = await provider.api(queryPath('select * from CompanyInfo'), accessToken)
    expect([answer.status, await answer.json()]).toMatchObject([401, failed401])
    expect((await provider.counters()).realms[REALM]).toMatchObject({
      apiCalls: 1,
      apiUnauthorized: 1,
    })
  })

  it('with the token of another company is answered 403', async () => {
    const answer = await provider.api(
      queryPath('select * from CompanyInfo', '4620816365291'),
      accessToken,
    )
    expect(answer.status).toBe(403)
    expect(await answer.json()).toMatchObject({ fault: { error: [{ code: '3100' }] } })
  })

  it('with a token without the accounting scope is answered 403', async () => {
    const code = await provider.code(REALM, { scope: 'openid' })
    const tokens = (await (await provider.exchange(code)).json()) as Tokens
    const answer = await provider.api(queryPath('select * from CompanyInfo'), tokens.access_token)
    expect(answer.status).toBe(403)
  })
})

describe('creating an entity', () => {
  const post = (requestId: string | null, body: string) =>
    provider.api(
      `/v3/company/${REALM}/invoice${requestId === null ? '' : `?requestid=${requestId}`}`,
      accessToken,
      { method: 'POST', body },
    )

  it('echoes it with what the provider adds', async () => {
    const answer = await post(null, '{"DocNumber":"1001"}')
    expect(await answer.json()).toMatchObject({
      Invoice: { DocNumber: '1001', Id: '1', SyncToken: '0', domain: 'QBO' },
    })
  })

  it('plays the first answer back when the requestid comes again, and creates nothing', async () => {
    const first = await (await post('r1', '{"DocNumber":"1"}')).text()
    provider.moveTime(1_000)
    expect(await (await post('r1', '{"DocNumber":"2"}')).text()).toBe(first)
    expect(await (await post('r2', '{}')).json()).toMatchObject({ Invoice: { Id: '2' } })
    expect((await provider.counters()).realms[REALM]).toMatchObject({
      entitiesCreated: 2,
      playedBack: 1,
    })
  })

  it.each(['', '[]', 'null', '"text"', '{'])('refuses %j as a body', async (body) => {
    const answer = await post('r1', body)
    expect(answer.status).toBe(400)
    expect(await answer.json()).toHaveProperty('Fault.type', 'ValidationFault')
    expect((await provider.counters()).realms[REALM]).toMatchObject({ entitiesCreated: 0 })
  })

  it('takes a body that claims to be a prototype for what it is', async () => {
    const answer = await post(null, '{"__proto__":{"polluted":1}}')
    expect(answer.status).toBe(200)
    expect(({} as { polluted?: number }).polluted).toBeUndefined()
  })
})
