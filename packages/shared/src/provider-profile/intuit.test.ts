import { describe, expect, it } from 'vitest'
import { providerErrorOf, providerReason } from './provider-fault.ts'
import { generic } from './profiles.ts'
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
      'production in an older discovery document',
      'https://accounts.intuit.com/v1/openid_connect/userinfo',
      'https://quickbooks.api.intuit.com',
    ],
  ])(
    'the intuit profile derives the accounting address of %s from the userinfo endpoint of the discovery document',
    (_, userinfo_endpoint, address) => {
      expect(intuit.accounting.addressOf({ issuer: ISSUER, userinfo_endpoint })).toBe(address)
    },
  )

  it.each([undefined, 'accounts.', 'https://op.example/userinfo'])(
    'the intuit profile returns no accounting address for the unknown userinfo endpoint %s',
    (userinfo_endpoint) => {
      expect(intuit.accounting.addressOf({ issuer: ISSUER, userinfo_endpoint })).toBeNull()
    },
  )

  it.each([
    ['another issuer', 'https://op.example'],
    ['an issuer that only begins like the one of Intuit', `${ISSUER}.example`],
    ['no issuer', undefined],
  ])(
    'the intuit profile returns no accounting address for a discovery document with %s',
    (_, issuer) => {
      expect(intuit.accounting.addressOf({ issuer })).toBeNull()
    },
  )

  it('the generic profile returns no accounting address for any discovery document', () => {
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
    'the intuit profile maps the error code %s to the class %s in all three formats of an error body',
    (code, faultClass) => {
      for (const body of [capital(code), lower(code), xml(code)])
        expect(intuit.accounting.faultOf(body)).toMatchObject({ code, class: faultClass })
    },
  )

  it.each([
    ['a JSON number', '{"Fault":{"Error":[{"code":6190}]}}'],
    ['in the second error', '{"Fault":{"Error":[{"code":"610"},{"code":"6190"}]}}'],
    ['in single quotes', "<R><Fault type='x'><Error code='6190'/></Fault></R>"],
    ['after another attribute', '<R><Fault><Error element="a>b" code="6190"/></Fault></R>'],
  ])('the intuit profile reads an error code that is %s', (_, body) => {
    expect(intuit.accounting.faultOf(body)).toMatchObject({
      code: '6190',
      class: 'provider_subscription_ended',
    })
  })

  it('the intuit profile recognises an error code with leading zeros', () => {
    expect(intuit.accounting.faultOf(xml('003100'))).toMatchObject({
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
  ])('the intuit profile reads no error from %s', (_, body) => {
    expect(intuit.accounting.faultOf(body)).toBeNull()
  })

  it.each([
    ['an error body without a list of errors', '{"Fault":{}}'],
    ['an error code that is not a number', '{"Fault":{"Error":[{"code":"<script>"}]}}'],
    [
      'an XML fault that contains no error element',
      '<IntuitResponse><Fault type="SERVICE"/></IntuitResponse>',
    ],
  ])('the intuit profile returns an empty error code for %s', (_, body) => {
    expect(intuit.accounting.faultOf(body)).toMatchObject({ code: '', message: '', class: null })
  })

  it.each([
    [
      'JSON',
      '{"Fault":{"Error":[{"Message":"Duplicate Name Exists Error","Detail":"The name <exists>","code":"6240"}]}}',
    ],
    [
      'lower-case JSON',
      '{"fault":{"error":[{"message":"Duplicate Name Exists Error","detail":"The name <exists>","code":"6240"}]}}',
    ],
    [
      'XML',
      '<R><Fault type="x"><Error code="6240"><Message>Duplicate Name Exists Error</Message><Detail>The name &lt;exists&gt;</Detail></Error></Fault></R>',
    ],
  ])('the reason of a failed call has the code, message and detail of a %s body', (_, body) => {
    const fault = intuit.accounting.faultOf(body)
    expect(fault && providerReason(fault, 'POST x responded with 400')).toBe(
      '6240 Duplicate Name Exists Error: The name <exists> (POST x responded with 400)',
    )
  })

  it('the texts of a provider become one line of visible characters, and have a maximum length', () => {
    const Message = `A\u202eB\n${'m'.repeat(5_000)}`
    const Error = { code: '1', Message, Detail: `\u0000d${'d'.repeat(5_000)}` }
    const fault = intuit.accounting.faultOf(JSON.stringify({ Fault: { Error: [Error] } }))
    const reason = fault === null ? '' : providerReason(fault, 'GET x responded with 400')
    expect(reason).toMatch(/^1 A B m+…: d+… \(GET x responded with 400\)$/)
    expect(reason.length).toBeLessThan(600)
  })

  it('code and message are found in the stored reason of a run, and only there', () => {
    const found = (ErrorClass: string, LastError: string | null) =>
      providerErrorOf({ ErrorClass, LastError })
    expect(found('http_400', '6140 Duplicate Number Error: the 12: again (POST x …)')).toBe(
      '6140 Duplicate Number Error',
    )
    expect(found('provider_fault', '610: POST x responded with 200. Remedy')).toBe('610')
    expect(found('step_failed', '610 Not Found: own words')).toBeNull()
    expect(found('http_404', 'GET http://x:1/ responded with 404')).toBeNull()
    expect(found('http_400', null)).toBeNull()
  })

  it('the generic profile finds no error in any body', () => {
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
  ])(
    'for a revocation response of status %i with body %j, isAlreadyRevoked of the intuit profile returns %s',
    (status, text, is) => {
      expect(intuit.revocation.isAlreadyRevoked({ status, text })).toBe(is)
    },
  )
})
