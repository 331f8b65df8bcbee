import type { HttpRequest, Receiver } from '@integration-host/shared/http/client/exchange'

/** The port to the accounting API: one request, its answer in pieces as they arrive. */
export interface Upstream {
  send(request: HttpRequest, receiver: Receiver): void
}
