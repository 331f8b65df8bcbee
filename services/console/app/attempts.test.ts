import { expect, it } from 'vitest'
import { withoutCall } from './attempts.ts'

const Request = { Method: 'POST', Url: 'http://gateway:7218/v3/company/42/customer' }
const call = `${Request.Method} ${Request.Url}`

it.each([
  [`${call} responded with 503`, 'responded with 503'],
  [`6240 Duplicate Name: it exists (${call} responded with 400)`, '6240 Duplicate Name: it exists'],
  ['TypeError: no', 'TypeError: no'],
  [null, ''],
])('the error %j of an attempt is shown beside its call as %j', (error, shown) => {
  expect(withoutCall({ Error: error, Request })).toBe(shown)
})

it('the error of an attempt without a call is shown whole', () => {
  expect(withoutCall({ Error: `${call} responded with 503`, Request: null })).toContain(call)
})
