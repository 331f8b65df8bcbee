/**
 * The reasons why a forward proxy opened no tunnel. `PROXY_UNREACHABLE`: no connection to the proxy was established.
 * `PROXY_TIMEOUT`: the proxy did not respond in time. `PROXY_AUTHENTICATION_REQUIRED`: it responded with 407.
 * `PROXY_REFUSED`: it responded with another status than 2xx. `PROXY_INVALID_RESPONSE`: it did not respond as an HTTP
 * proxy.
 */
export type ForwardProxyFailure =
  | 'PROXY_UNREACHABLE'
  | 'PROXY_TIMEOUT'
  | 'PROXY_AUTHENTICATION_REQUIRED'
  | 'PROXY_REFUSED'
  | 'PROXY_INVALID_RESPONSE'

/**
 * The error of a forward proxy that opened no tunnel. No byte was sent to the origin. The message contains the host and
 * port of the proxy, but neither its credentials nor text from its response.
 */
export class ForwardProxyError extends Error {
  override readonly name = 'ForwardProxyError'
  readonly code: ForwardProxyFailure

  /** `address` is the proxy's `host:port`; `found` continues the sentence "the forward proxy …". */
  constructor(code: ForwardProxyFailure, address: string, found: string, options?: ErrorOptions) {
    super(`the forward proxy ${address} ${found}`, options)
    this.code = code
  }
}
