import type { HttpRequest, Receiver } from '@integration-host/fast-http/exchange'

/** The port to the accounting API. `send` sends one request and passes the parts of the response to `receiver`. */
export interface Upstream {
  send(request: HttpRequest, receiver: Receiver): void
}
