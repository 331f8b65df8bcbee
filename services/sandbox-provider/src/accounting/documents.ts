/** The accounting API's answers, spelled like the real one's. `now` is when they are made. */

/** 401, 403 and 5xx: lower-case `fault` in the whole of its envelope. */
const serviceFault = (
  error: { readonly message: string; readonly detail: string; readonly code: string },
  type: string,
  now: Date,
) => ({
  warnings: null,
  intuitObject: null,
  fault: { error: [{ ...error, element: null }], type },
  report: null,
  queryResponse: null,
  batchItemResponse: [],
  attachableResponse: [],
  syncErrorResponse: null,
  requestId: null,
  time: now.getTime(),
  status: null,
  cdcresponse: [],
})

/** 401: no token, or one that is unknown, expired or revoked. */
export const authenticationFailed = (now: Date) =>
  serviceFault(
    {
      message: 'message=AuthenticationFailed; errorCode=003200; statusCode=401',
      detail: 'Token expired or not valid',
      code: '3200',
    },
    'AUTHENTICATION',
    now,
  )

/** 403: a valid token of another company, or without the accounting scope. */
export const authorizationFailed = (now: Date) =>
  serviceFault(
    {
      message: 'message=AuthorizationFailed; errorCode=003100; statusCode=403',
      detail: 'The token does not cover this company',
      code: '3100',
    },
    'SERVICE',
    now,
  )

/** 5xx, as far as anything is said. */
export const serviceUnavailable = (status: number, now: Date) =>
  serviceFault(
    {
      message: `message=ServiceUnavailable; errorCode=00${status}; statusCode=${status}`,
      detail: 'Something failed inside',
      code: String(status),
    },
    'SERVICE',
    now,
  )

/** 400: upper-case `Fault`, alone with the time. */
export const validationFault = (
  error: { readonly Message: string; readonly Detail: string; readonly code: string },
  now: Date,
) => ({ Fault: { Error: [error], type: 'ValidationFault' }, time: now.toISOString() })

/** 429: XML, whatever was asked for. */
export const throttleExceeded = (now: Date): string =>
  `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>` +
  `<IntuitResponse time="${now.toISOString()}" xmlns="http://schema.intuit.com/finance/v3">` +
  `<Fault type="SERVICE"><Error code="3001">` +
  `<Message>message=ThrottleExceeded; errorCode=003001; statusCode=429</Message>` +
  `</Error></Fault></IntuitResponse>`
