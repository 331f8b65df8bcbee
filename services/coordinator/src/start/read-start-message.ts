import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { asObject, jsonExcess } from '@integration-host/shared/json'
import { parseClientJson } from '../run/json-normalization.ts'
import { checkedQueueable, MAX_TRANSACTION_BYTES, utf8Of } from '../run/queueable.ts'
import type { IntakeMessage } from '../worker/intake-queue.ts'

/**
 * Returns the transaction of a start message, or the reason why the message has none. If the body has no
 * `TransactionID`, the message id becomes the `TransactionID`. The reason begins with a stable code and contains no
 * data of the message.
 */
export function readStartMessage({
  content,
  messageId,
}: Pick<IntakeMessage, 'content' | 'messageId'>):
  | { readonly transaction: QueueTransaction }
  | { readonly reason: string } {
  const read = readObject(content)
  if ('reason' in read) return read
  const { body } = read
  const isNamed = Object.hasOwn(body, 'TransactionID')
  if (!isNamed && messageId === '')
    return { reason: 'invalid_request: TransactionID: is missing, and the message has no id' }
  const checked = checkedQueueable(
    isNamed ? body : { ...body, TransactionID: messageId },
    'the message',
  )
  if ('transaction' in checked) return checked
  const source = isNamed ? '' : ' (TransactionID is the message id)'
  return { reason: `invalid_request: ${checked.problems.join('; ')}${source}` }
}

/** Returns the JSON object in the content of a message, or the reason why the message has none. */
export function readObject(
  content: Buffer,
): { readonly body: Readonly<Record<string, unknown>> } | { readonly reason: string } {
  // The size is checked before parsing, so that a large message is never parsed.
  if (content.length > MAX_TRANSACTION_BYTES)
    return { reason: `payload_too_large: may have at most ${MAX_TRANSACTION_BYTES} bytes` }
  if (content.length === 0) return { reason: 'malformed: the message is empty' }
  const text = textOf(content)
  if (text === null) return { reason: 'malformed: the message is not UTF-8' }
  const value = parseClientJson(text)
  if (value === undefined) {
    const excess = jsonExcess(text)
    return {
      reason: excess === null ? 'malformed: the message is not JSON' : `invalid_request: ${excess}`,
    }
  }
  const body = asObject(value)
  return body === null ? { reason: 'malformed: the message is not a JSON object' } : { body }
}

function textOf(content: Buffer): string | null {
  try {
    return utf8Of(content)
  } catch {
    return null
  }
}
