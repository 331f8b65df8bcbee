import { describe, expect, it } from 'vitest'
import { generic } from './generic.ts'
import { intuit } from './intuit.ts'

const ISSUER = 'https://oauth.platform.intuit.com/op/v1'

describe('the accounting address in the intuit profile', () => {
  it.each([
    [
      'the sandbox',
      'https://sandbox-accounts.platform.intuit.com/v1/openid_connect/userinfo',
      'https://sandbox-quickbooks.api.intuit.com',
    ],
    [
      'production',
      'https://accounts.platform.intuit.com/v1/openid_connect/userinfo',
      'https://quickbooks.api.intuit.com',
    ],
    [
      'production in an older document',
      'https://accounts.intuit.com/v1/openid_connect/userinfo',
      'https://quickbooks.api.intuit.com',
    ],
  ])(
    'returns the accounting address of %s by the userinfo endpoint of its discovery document',
    (_, userinfo_endpoint, address) => {
      expect(intuit.accounting.addressOf({ issuer: ISSUER, userinfo_endpoint })).toBe(address)
    },
  )

  it.each([undefined, 'accounts.', 'https://op.example/userinfo'])(
    'returns no accounting address, never that of production, for the userinfo endpoint %s',
    (userinfo_endpoint) => {
      expect(intuit.accounting.addressOf({ issuer: ISSUER, userinfo_endpoint })).toBeNull()
    },
  )

  it.each([
    ['another issuer', 'https://op.example'],
    ["an issuer that only begins like Intuit's", `${ISSUER}.example`],
    ['no issuer', undefined],
  ])('returns no accounting address for %s', (_, issuer) => {
    expect(intuit.accounting.addressOf({ issuer })).toBeNull()
  })

  it('finds no accounting address under the generic profile', () => {
    expect(generic.accounting.addressOf({ issuer: ISSUER })).toBeNull()
  })
})

describe('reading an error body under the intuit profile', () => {
  const capital = (code: string) =>
    JSON.stringify({ Fault: { Error: [{ Message: 'm', code }], type: 'ValidationFault' } })
  const lower = (code: string) =>
    JSON.stringify({ warnings: null, fault: { error: [{ message: 'm', code }], type: 'SERVICE' } })
  const xml = (code: string) =>
    `<?xml version="1.0"?><IntuitResponse><Fault type="SERVICE"><Error code="${code}"/></Fault></IntuitResponse>`

  it.each([
    ['120', 'provider_permission_denied'],
    ['130', 'provider_environment_mixed'],
    ['600', 'provider_duplicate_request'],
    ['3100', 'provider_permission_denied'],
    ['5020', 'provider_permission_denied'],
    ['6190', 'provider_subscription_ended'],
    ['610', null],
    ['5010', null],
    ['6240', null],
  ])(
    'maps the error code %s to the class %s in all three formats of an error body',
    (code, faultClass) => {
      for (const body of [capital(code), lower(code), xml(code)])
        expect(intuit.accounting.faultOf(body)).toEqual({ code, class: faultClass })
    },
  )

  it.each([
    ['a number', '{"Fault":{"Error":[{"code":6190}]}}'],
    ['in the second error', '{"Fault":{"Error":[{"code":"610"},{"code":"6190"}]}}'],
    ['in single quotes', "<R><Fault type='x'><Error code='6190'/></Fault></R>"],
    ['after another attribute', '<R><Fault><Error element="a>b" code="6190"/></Fault></R>'],
  ])('reads an error code that is %s', (_, body) => {
    expect(intuit.accounting.faultOf(body)).toEqual({
      code: '6190',
      class: 'provider_subscription_ended',
    })
  })

  it('finds an error code that has leading zeros', () => {
    expect(intuit.accounting.faultOf(xml('003100'))).toEqual({
      code: '003100',
      class: 'provider_permission_denied',
    })
  })

  it.each([
    ['a query response', '{"QueryResponse":{"Invoice":[]},"time":"t"}'],
    ['a batch response with a fault in one item', '{"BatchItemResponse":[{"bId":"1","Fault":{}}]}'],
    ['an entity whose text mentions a fault', '{"Invoice":{"PrivateNote":"\\"Fault\\": 1"}}'],
    ['an XML entity', '<?xml version="1.0"?><IntuitResponse><Invoice/></IntuitResponse>'],
    ['JSON that is cut off', '{"Fault":{"Error":[{"code":"5020"'],
    ['a JSON list', '[]'],
    ['an empty body', ''],
    ['plain text', 'Fault'],
  ])('reads no error from %s', (_, body) => {
    expect(intuit.accounting.faultOf(body)).toBeNull()
  })

  it.each([
    ['no list of errors', '{"Fault":{}}'],
    ['a code that is not a number', '{"Fault":{"Error":[{"code":"<script>"}]}}'],
    ['XML without an error', '<IntuitResponse><Fault type="SERVICE"/></IntuitResponse>'],
  ])('returns an empty code for an error body with %s', (_, body) => {
    expect(intuit.accounting.faultOf(body)).toEqual({ code: '', class: null })
  })

  it('finds no error in any body under the generic profile', () => {
    expect(generic.accounting.faultOf(capital('5020'))).toBeNull()
  })
})

describe('a revocation response under the intuit profile', () => {
  it.each([
    [400, '', true],
    [400, ' \n', true],
    [400, '{"error":"invalid_request"}', false],
    [401, '', false],
    [500, '', false],
  ])('for status %i with body %j, isAlreadyRevoked returns %s', (status, text, is) => {
    expect(intuit.revocation.isAlreadyRevoked({ status, text })).toBe(is)
  })
})
