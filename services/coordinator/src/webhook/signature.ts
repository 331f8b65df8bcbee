/** Signs webhooks as the Standard Webhooks specification 1.0.0 describes. */
import { createHmac } from 'node:crypto'
import type { Secret } from '@integration-host/shared/secrets/secret'

/**
 * Returns the headers of one attempt to deliver a webhook.
 *
 * @param id - the same in every attempt; it contains no full stop, because full stops separate the signed parts
 * @param nowMs - the time of the attempt, epoch ms. Receivers reject an old time, so that an attacker who has recorded
 *   a webhook cannot send it again later.
 */
export function signedHeaders(
  { key, id, body }: { readonly key: Secret; readonly id: string; readonly body: string },
  nowMs: number,
): Readonly<Record<string, string>> {
  const timestamp = String(Math.floor(nowMs / 1_000))
  const signature = createHmac('sha256', Buffer.from(key.reveal(), 'base64'))
    .update(`${id}.${timestamp}.${body}`)
    .digest('base64')
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${signature}`,
  }
}
