import { IntegrationError } from '@integration-host/shared/errors'

export interface KeptAnswers {
  /**
   * The answer to `request`: made by `make` the first time, the very same one whenever the key comes again.
   *
   * @throws {IntegrationError} invalid_request, the key came before with another request.
   */
  answer<Answer>(
    key: string | undefined,
    request: string,
    make: () => Answer,
  ): { readonly answer: Answer; readonly isRepeated: boolean }
}

// A coordinator's key holds a transaction id of 128 characters, each up to nine once percent-encoded.
const KEY = /^[\x21-\x7e]{1,2048}$/

/** Keeps the answers of the last `capacity` idempotency keys in memory; the oldest goes first. */
export function createKeptAnswers(capacity: number): KeptAnswers {
  const kept = new Map<string, { readonly request: string; readonly answer: unknown }>()
  return {
    answer<Answer>(key: string | undefined, request: string, make: () => Answer) {
      if (key === undefined) return { answer: make(), isRepeated: false }
      if (!KEY.test(key)) {
        throw new IntegrationError(
          'invalid_request',
          'Idempotency-Key: must be 1 to 2048 printable characters without spaces',
        )
      }
      const known = kept.get(key)
      if (known === undefined) {
        const answer = make()
        kept.set(key, { request, answer })
        const [oldest] = kept.keys()
        if (kept.size > capacity && oldest !== undefined) kept.delete(oldest)
        return { answer, isRepeated: false }
      }
      if (known.request !== request) {
        throw new IntegrationError(
          'invalid_request',
          'Idempotency-Key: was used for another request',
        )
      }
      // The request names the route, so what was kept for it is of its route's shape.
      return { answer: known.answer as Answer, isRepeated: true }
    },
  }
}
