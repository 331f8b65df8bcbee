/**
 * The accounting API's errors: the status, code and message of each error, and the three formats of an error body.
 *
 * - The accounting service's own errors are `{"Fault": {"Error": […]}, "time": "…"}` in JSON if the request's `Accept`
 *   names `application/json`. Otherwise they are XML, the default format of Intuit's API.
 * - Intuit's API gateway, which is in front of the service, sends a JSON object in which only the member `fault` (in
 *   lower case) is not `null`. For 401 and 403, some users report this JSON object and others report XML. Intuit does
 *   not document the format. In this sandbox, the `Accept` header of the request selects the format.
 * - The error of a throttled call is always XML, because users report XML even for requests that accept JSON. This
 *   sandbox also sends XML for failures of the gateway itself (5xx). So a client that expects JSON is also tested with
 *   XML.
 *
 * The comment "not from Intuit" marks texts that were written for this sandbox.
 */
export interface ApiError {
  readonly status: number
  readonly origin: 'service' | 'gateway' | 'gateway-xml'
  /** The value of the member `type` in the error body. */
  readonly type: string
  readonly code: string
  readonly message: string
  readonly detail: string | null
  readonly element: string | null
}

/** An error of Intuit's API. An injected fault can select the error by its code. */
interface NumberedError extends ApiError {
  readonly status: 400 | 401 | 403 | 429
}

interface Words {
  readonly message: string
  readonly detail: string
  readonly element?: string
}

const validation = (code: string, { message, detail, element = '' }: Words): NumberedError => ({
  status: 400,
  origin: 'service',
  type: 'ValidationFault',
  code,
  message,
  detail,
  element,
})

/**
 * The errors that an injected fault can return (`{"target": "api", "fault": "5020"}`), by error code.
 */
export const apiErrors = {
  '120': {
    // Users report that error code 120 also occurs with status 500.
    status: 401,
    origin: 'service',
    type: 'AuthorizationFault',
    code: '120',
    message: 'Authorization Failure',
    detail: 'AuthorizationFailure: Unknown Error during Authentication, statusCode: 401',
    element: null,
  },
  '130': {
    status: 401,
    origin: 'service',
    type: 'AuthenticationFault',
    code: '130',
    message: 'Accessing Wrong Cluster',
    detail:
      'WrongClusterError: -11017-You have accessed the wrong server.  You will now be redirected. , statusCode: 401',
    element: null,
  },
  '500': validation('500', {
    message: 'Unsupported Operation',
    detail: 'The sandbox does not have this operation.', // not from Intuit
  }),
  '610': validation('610', {
    message: 'Object Not Found',
    detail:
      "Object Not Found : Something you're trying to use has been made inactive. Check the fields with accounts, customers, items, vendors or employees.",
  }),
  '1040': validation('1040', {
    message: 'The maximum number of batch items is exceeded',
    detail: 'A batch has at most 30 items.', // not from Intuit
  }),
  '2010': validation('2010', {
    message: 'Request has invalid or unsupported property',
    detail: 'The body must be a JSON object.', // not from Intuit
  }),
  '2020': validation('2020', {
    message: 'Required param missing, need to supply the required value for the API',
    detail: 'Required parameter SyncToken is missing in the request',
    element: 'SyncToken',
  }),
  '2130': validation('2130', {
    message: 'Invalid Request Id format',
    detail: 'A requestid has at most 50 characters.', // not from Intuit
  }),
  '3001': {
    status: 429,
    origin: 'gateway-xml',
    type: 'SERVICE',
    code: '3001',
    message: 'message=ThrottleExceeded; errorCode=003001; statusCode=429',
    detail: null,
    element: null,
  },
  '3100': {
    status: 403,
    origin: 'gateway',
    type: 'SERVICE',
    code: '3100',
    message: 'message=ApplicationAuthorizationFailed; errorCode=003100; statusCode=403',
    detail: null,
    element: null,
  },
  '3200': {
    status: 401,
    origin: 'gateway',
    type: 'AUTHENTICATION',
    code: '3200',
    message: 'message=AuthenticationFailed; errorCode=003200; statusCode=401',
    detail: 'Token expired or not valid', // not from Intuit
    element: null,
  },
  '4000': validation('4000', {
    message: 'Error parsing query',
    detail:
      'QueryParserError: the statement is not select *, select count(*) or select <Member>, … from <Entity> [where … and …] [orderby …] [startposition n] [maxresults n]', // not from Intuit
  }),
  '5010': validation('5010', {
    message: 'Stale Object Error',
    detail:
      'Stale Object Error : You and root were working on this at the same time. root finished before you did, so your work was not saved.',
  }),
  '5020': validation('5020', {
    message: 'Permission Denied Error',
    detail: 'Permission Denied Error : You do not have sufficient permissions to do this.', // not from Intuit
  }),
  '6000': validation('6000', {
    message: 'A business validation error has occurred while processing your request',
    detail: 'Business Validation Error: The transaction is linked to a payment.', // not from Intuit
  }),
  '6190': validation('6190', {
    message: 'Invalid Company Status',
    detail:
      "Subscription period has ended or canceled or there was a billing problem : You can't add data to QuickBooks Online Plus because your trial or subscription period ended.",
  }),
  '6200': validation('6200', {
    message: 'Account Period Closed',
    detail: 'The account period has closed.', // not from Intuit
  }),
  '6210': validation('6210', {
    message: 'Account Period Closed, Cannot Update Through Services API',
    detail:
      'The account period has closed and the account books cannot be updated through the QBO Services API. Please check the QBO website for more information.',
  }),
  '6240': validation('6240', {
    message: 'Duplicate Name Exists Error',
    detail: 'The name supplied already exists. : null',
  }),
} as const satisfies Readonly<Record<string, NumberedError>>

export type ApiErrorCode = keyof typeof apiErrors
/** The error codes, sorted in ascending order. */
export const apiErrorCodes = Object.keys(apiErrors) as ApiErrorCode[]

/**
 * Returns the error of the accounting API for an HTTP status. An injected fault can specify a status instead of an
 * error code.
 */
export function apiErrorOf(status: number): ApiError {
  const known = STATUSES[status]
  if (known !== undefined) return apiErrors[known]
  return {
    status,
    origin: 'gateway-xml',
    type: 'SERVICE',
    code: String(status),
    message: `message=ServiceUnavailable; errorCode=00${status}; statusCode=${status}`,
    detail: null,
    element: null,
  }
}

const STATUSES: Readonly<Record<number, ApiErrorCode>> = { 401: '3200', 403: '3100', 429: '3001' }

export interface ErrorBody {
  readonly body: string
  readonly contentType: string
}

/** Returns the body of an error in the format that `accept`, the `Accept` header of the request, selects. */
export function apiErrorBody(error: ApiError, accept: string | undefined, now: Date): ErrorBody {
  if (error.origin === 'gateway-xml' || !/\bapplication\/json\b/i.test(accept ?? '')) {
    return { body: xmlOf(error, now), contentType: 'application/xml' }
  }
  const document = error.origin === 'gateway' ? gatewayJson(error, now) : serviceJson(error, now)
  return { body: JSON.stringify(document), contentType: 'application/json' }
}

/** Returns an error of the accounting service as the member `Fault` of a batch response. */
export const apiErrorDocument = (code: ApiErrorCode) => ({
  Fault: serviceFault(apiErrors[code]),
})

const gatewayJson = ({ message, detail, code, element, type }: ApiError, now: Date) => ({
  warnings: null,
  intuitObject: null,
  fault: { error: [{ message, detail, code, element }], type },
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

const serviceJson = (error: ApiError, now: Date) => ({
  Fault: serviceFault(error),
  time: now.toISOString(),
})

const serviceFault = ({ message, detail, code, element, type }: ApiError) => ({
  Error: [
    {
      Message: message,
      ...(detail !== null && { Detail: detail }),
      code,
      ...(element !== null && { element }),
    },
  ],
  type,
})

const xmlOf = ({ message, detail, code, element, type }: ApiError, now: Date): string =>
  `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>` +
  `<IntuitResponse xmlns="http://schema.intuit.com/finance/v3" time="${now.toISOString()}">` +
  `<Fault type="${escaped(type)}">` +
  `<Error code="${escaped(code)}"${element === null ? '' : ` element="${escaped(element)}"`}>` +
  `<Message>${escaped(message)}</Message>` +
  (detail === null ? '' : `<Detail>${escaped(detail)}</Detail>`) +
  `</Error></Fault></IntuitResponse>`

const escaped = (text: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
