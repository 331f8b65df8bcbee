/** Sends notifications to the webhook receiver of a system, as the provider does. */
import { createHmac } from 'node:crypto'
import type { System } from '../system.ts'

export interface NotifiedChange {
  readonly id: string
  readonly realm?: string
  /** The time of the change in RFC 3339. */
  readonly time?: string
}

const REALM = '9341453908059889'
const TIME = '2026-11-23T17:05:09Z'

/** Returns the id of the event that a change causes. */
export const eventIdOf = ({ id, realm = REALM, time = TIME }: NotifiedChange): string =>
  `Invoice-${id}@${time}/${realm}`

/** Returns a notification with updates of invoices, and its signature. */
export function signedNotification(
  token: string,
  changes: readonly NotifiedChange[] = [{ id: '129' }],
): { readonly body: string; readonly signature: string } {
  const body = JSON.stringify(
    changes.map(({ id, realm = REALM, time = TIME }) => ({
      specversion: '1.0',
      id: crypto.randomUUID(),
      source: 'intuit.tests=',
      type: 'qbo.invoice.updated.v1',
      time,
      intuitentityid: id,
      intuitaccountid: realm,
      data: {},
    })),
  )
  return { body, signature: createHmac('sha256', token).update(body).digest('base64') }
}

/** Sends one notification with updates of invoices to the webhook receiver. */
export function sendNotification(
  system: Pick<System, 'url' | 'verifierToken'>,
  changes?: readonly NotifiedChange[],
): Promise<Response> {
  return postNotification(system, signedNotification(system.verifierToken, changes))
}

/** Sends a notification with the given signature to the webhook receiver. */
export const postNotification = (
  system: Pick<System, 'url'>,
  { body, signature }: { readonly body: string; readonly signature: string },
): Promise<Response> =>
  fetch(`${system.url('webhook-receiver')}/webhooks/intuit`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/cloudevents+json',
      'intuit-signature': signature,
    },
    body,
  })
