import { Reason } from '@integration-host/shared/contracts/text'
import { ReplayID, TransactionID } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { StorableJson } from '../run/queueable.ts'
import { readObject } from '../start/read-start-message.ts'

/** The body of a message of the queue `start.<Process>.signal`. */
const SignalMessage = z.strictObject({
  TransactionID,
  ReplayID: ReplayID.optional(),
  Event: z.string(),
  EventID: TransactionID.optional(),
  Data: StorableJson.optional(),
  Reason: Reason.optional(),
})
export type SignalMessage = z.output<typeof SignalMessage>

/** Returns the event in the content of a message, or the reason why the message has none. */
export function readSignal(
  content: Buffer,
): { readonly signal: SignalMessage } | { readonly reason: string } {
  const read = readObject(content)
  if ('reason' in read) return read
  const parsed = SignalMessage.safeParse(read.body)
  if (parsed.success) return { signal: parsed.data }
  const [issue] = parsed.error.issues
  return {
    reason: `invalid_request: ${issue?.path.join('.') || 'the message'}: ${issue?.message ?? ''}`,
  }
}
