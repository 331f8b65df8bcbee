import { IntegrationError } from '@integration-host/shared/errors'

// Accepts keys of at most 2,048 characters. The coordinator's keys contain a transaction id of up to 128 characters,
// and percent-encoding can turn one character into nine.
const KEY = /^[\x21-\x7e]{1,2048}$/

/**
 * Stores the responses to the last `capacity` idempotency keys in memory. When the cache is full, the oldest response
 * is evicted.
 */
export function createIdempotencyCache(capacity: number) {
  const cached = new Map<string, { readonly request: string; readonly response: unknown }>()
  return {
    /**
     * Returns the response to `request`. For a new idempotency key, computes the response with `make`; for a repeated
     * key, returns the stored response.
     *
     * @throws {IntegrationError} invalid_request: the key is malformed, or was used for another request.
     */
    respond<Response>(key: string | undefined, request: string, make: () => Response) {
      if (key === undefined) return { response: make(), isRepeated: false }
      if (!KEY.test(key)) {
        throw new IntegrationError(
          'invalid_request',
          'Idempotency-Key: must be 1 to 2048 printable characters without spaces',
        )
      }
      const known = cached.get(key)
      if (known === undefined) {
        const response = make()
        cached.set(key, { request, response })
        const [oldest] = cached.keys()
        if (cached.size > capacity && oldest !== undefined) cached.delete(oldest)
        return { response, isRepeated: false }
      }
      if (known.request !== request) {
        throw new IntegrationError(
          'invalid_request',
          'Idempotency-Key: was used for another request',
        )
      }
      // The cast is safe: `request` contains the route, and the stored response was made for the same `request`.
      return { response: known.response as Response, isRepeated: true }
    },
  }
}
