/**
 * Accepts one delivery of the provider.
 *
 * D1  A body is parsed only after its signature has been verified.
 * D2  A delivery is accepted only after the broker has confirmed all of its events. If anything fails before that, the
 *     provider sends the whole delivery again, and its events have the same ids.
 * D3  A change that cannot be published is counted and logged. The delivery is accepted nevertheless. Otherwise
 *     the provider would repeat the whole delivery, and the change would fail again each time.
 */
import type { ProviderEvent } from '@integration-host/shared/contracts/provider-event'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { type Notification, parseNotification } from './notification.ts'
import { createHmac, hash, timingSafeEqual } from 'node:crypto'

/** The points at which fault tests kill the process. */
export const failpoints = ['after body', 'before publish', 'after confirm'] as const
export type Failpoint = (typeof failpoints)[number]

export interface AcceptDeps {
  readonly tokens: readonly Secret[]
  /** Publishes an event. Resolves when the broker has confirmed it. */
  readonly publish: (event: ProviderEvent) => Promise<void>
  /** Called with each delivery whose events are confirmed. */
  readonly onAccepted: (notification: Notification) => void
  /** Awaited at each failpoint. Only tests set this function. */
  readonly failpoint?: (point: Failpoint) => Promise<void> | void
}

export interface Delivery {
  readonly body: Buffer
  /** The header `intuit-signature`; `null` if it is missing. */
  readonly signature: string | null
  /** A signal that aborts at the deadline for the response to the provider. */
  readonly deadline: AbortSignal
  /** Called when no event of the delivery is in flight any more. This can be after the deadline. */
  readonly onSettled: () => void
}

export type AcceptDelivery = (delivery: Delivery) => Promise<Notification>

/**
 * Builds a function that verifies a delivery and publishes its events. The promise of the function resolves when the
 * broker has confirmed every event.
 *
 * The function throws an {@link IntegrationError}: `signature_invalid`; `invalid_request` if a signed body has no
 * known format; `broker_unavailable` if an event is not confirmed before the deadline.
 */
export function createAcceptDelivery(deps: AcceptDeps): AcceptDelivery {
  const { tokens, publish, onAccepted, failpoint } = deps

  return async ({ body, signature, deadline, onSettled }) => {
    let isPublishing = false
    try {
      await failpoint?.('after body')
      if (signature === null || !isSignedBy(tokens, body, signature))
        throw new IntegrationError(
          'signature_invalid',
          'the header intuit-signature does not match the body',
        )
      const notification = parseNotification(body)
      if (notification === null)
        throw new IntegrationError('invalid_request', 'the body has no known notification format')
      await failpoint?.('before publish')
      const confirmed = Promise.allSettled(notification.events.map(publish))
      isPublishing = true
      void confirmed.then(onSettled)
      await unlessAborted(deadline, confirmed)
      await failpoint?.('after confirm')
      onAccepted(notification)
      return notification
    } finally {
      if (!isPublishing) onSettled()
    }
  }
}

/**
 * @throws {IntegrationError} `broker_unavailable` if a publish fails, or if `deadline` aborts before every publish has
 * ended.
 */
async function unlessAborted(
  deadline: AbortSignal,
  confirmed: Promise<readonly PromiseSettledResult<void>[]>,
): Promise<void> {
  const late = Promise.withResolvers<null>()
  const onDeadline = (): void => late.resolve(null)
  deadline.addEventListener('abort', onDeadline, { once: true })
  if (deadline.aborted) onDeadline()
  const results = await Promise.race([confirmed, late.promise])
  deadline.removeEventListener('abort', onDeadline)
  if (results === null) throw unconfirmed()
  const failed = results.find((result) => result.status === 'rejected')
  if (failed !== undefined) throw unconfirmed(failed.reason)
}

const unconfirmed = (cause?: unknown): IntegrationError =>
  new IntegrationError('broker_unavailable', 'the broker has not confirmed every event', {
    cause,
    retryAfterSeconds: 10,
  })

/**
 * Returns whether `signature` is valid for `body`. A valid signature is the Base64 form of HMAC-SHA256 over the bytes
 * of the body, with one of the verifier tokens as the key.
 *
 * The comparison takes the same time for every signature and every token. All tokens are tried, and digests are
 * compared, because `timingSafeEqual` needs values of equal length.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks (Validating the notification)
 */
export function isSignedBy(tokens: readonly Secret[], body: Buffer, signature: string): boolean {
  const given = digest(signature)
  let isValid = false
  for (const token of tokens) {
    const expected = createHmac('sha256', token.reveal()).update(body).digest('base64')
    if (timingSafeEqual(digest(expected), given)) isValid = true
  }
  return isValid
}

const digest = (text: string): Buffer => hash('sha256', text, 'buffer')
