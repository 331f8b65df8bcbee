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

const validation = (
  code: string,
  message: string,
  detail: string,
  element = '',
): NumberedError => ({
  status: 400,
  origin: 'service',
  type: 'ValidationFault',
  code,
  message,
  detail,
  element,
})

/** Returns an error of Intuit's API gateway. Only 401 and 403 are also sent as JSON. */
const gateway = <Status extends number>(
  status: Status,
  code: string,
  name: string,
  detail: string | null = null,
): ApiError & { readonly status: Status } => ({
  status,
  origin: status === 401 || status === 403 ? 'gateway' : 'gateway-xml',
  type: status === 401 ? 'AUTHENTICATION' : 'SERVICE',
  code,
  message: `message=${name}; errorCode=00${code}; statusCode=${status}`,
  detail,
  element: null,
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
  '500': validation(
    '500',
    'Unsupported Operation',
    'The sandbox does not have this operation.', // not from Intuit
  ),
  '610': validation(
    '610',
    'Object Not Found',
    "Object Not Found : Something you're trying to use has been made inactive. Check the fields with accounts, customers, items, vendors or employees.",
  ),
  '1040': validation(
    '1040',
    'The maximum number of batch items is exceeded',
    'A batch has at most 30 items.', // not from Intuit
  ),
  '2010': validation(
    '2010',
    'Request has invalid or unsupported property',
    'The body must be a JSON object.', // not from Intuit
  ),
  '2020': validation(
    '2020',
    'Required param missing, need to supply the required value for the API',
    'Required parameter SyncToken is missing in the request',
    'SyncToken',
  ),
  '2130': validation(
    '2130',
    'Invalid Request Id format',
    'A requestid has at most 50 characters.', // not from Intuit
  ),
  '3001': gateway(429, '3001', 'ThrottleExceeded'),
  '3100': gateway(403, '3100', 'ApplicationAuthorizationFailed'),
  '3200': gateway(401, '3200', 'AuthenticationFailed', 'Token expired or not valid'), // not from Intuit
  '4000': validation(
    '4000',
    'Error parsing query',
    'QueryParserError: the statement is not select *, select count(*) or select <Member>, … from <Entity> [where … and …] [orderby …] [startposition n] [maxresults n]', // not from Intuit
  ),
  '5010': validation(
    '5010',
    'Stale Object Error',
    'Stale Object Error : You and root were working on this at the same time. root finished before you did, so your work was not saved.',
  ),
  '5020': validation(
    '5020',
    'Permission Denied Error',
    'Permission Denied Error : You do not have sufficient permissions to do this.', // not from Intuit
  ),
  '6000': validation(
    '6000',
    'A business validation error has occurred while processing your request',
    'Business Validation Error: The transaction is linked to a payment.', // not from Intuit
  ),
  '6190': validation(
    '6190',
    'Invalid Company Status',
    "Subscription period has ended or canceled or there was a billing problem : You can't add data to QuickBooks Online Plus because your trial or subscription period ended.",
  ),
  '6200': validation(
    '6200',
    'Account Period Closed',
    'The account period has closed.', // not from Intuit
  ),
  '6210': validation(
    '6210',
    'Account Period Closed, Cannot Update Through Services API',
    'The account period has closed and the account books cannot be updated through the QBO Services API. Please check the QBO website for more information.',
  ),
  '6240': validation(
    '6240',
    'Duplicate Name Exists Error',
    'The name supplied already exists. : null',
  ),
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
  return gateway(status, String(status), 'ServiceUnavailable')
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
