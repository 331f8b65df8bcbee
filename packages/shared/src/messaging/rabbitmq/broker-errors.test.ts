import { describe, expect, it } from 'vitest'
import { brokerReason, inequivalenceOf } from './broker-errors.ts'

/** Errors as amqplib 2.3 throws them for replies of RabbitMQ 3.10.8. */
const refused = (code: number, text: string) =>
  Object.assign(new Error(`Operation failed: QueueDeclare; ${text}`), { code })

describe('the log text of errors from the broker', () => {
  it.each([
    [
      `406 (PRECONDITION-FAILED) with message "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'it's' in vhost '/': received the value '5000' of type 'signedint' but current is the value '1000' of type 'signedint'"`,
      { kind: 'queue', name: "it's", setting: 'x-message-ttl', wanted: '5000', found: '1000' },
    ],
    [
      `406 (PRECONDITION-FAILED) with message "PRECONDITION_FAILED - inequivalent arg 'x-overflow' for queue 'q' in vhost '/': received the value 'reject-publish' of type 'longstr' but current is none"`,
      { kind: 'queue', name: 'q', setting: 'x-overflow', wanted: 'reject-publish', found: 'none' },
    ],
    [
      `406 (PRECONDITION-FAILED) with message "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'e' in vhost '/': received 'fanout' but current is 'topic'"`,
      { kind: 'exchange', name: 'e', setting: 'type', wanted: 'fanout', found: 'topic' },
    ],
  ])(
    'inequivalenceOf extracts the incompatible argument of a declaration from the reply %s',
    (text, expected) => {
      expect(inequivalenceOf(refused(406, text))).toEqual(expected)
    },
  )

  it('brokerReason names the existing and the declared argument of an incompatible exchange', () => {
    const text = `406 (PRECONDITION-FAILED) with message "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'e' in vhost '/': received 'fanout' but current is 'topic'"`
    expect(brokerReason(refused(406, text))).toBe(
      'exchange e exists with another type (topic) than it needs (fanout)',
    )
  })

  it('brokerReason returns the code or class of an error that is not an incompatible declaration, never the text', () => {
    const text = `Handshake terminated by server: 403 (ACCESS-REFUSED) with message "ACCESS_REFUSED - Login was refused for user 'x'"`
    expect(brokerReason(new Error(text))).toBe('ACCESS-REFUSED')
    const refusal = Object.assign(new Error('x'), { code: 'ECONNREFUSED' })
    expect(brokerReason(refusal)).toBe('ECONNREFUSED')
    expect(brokerReason(new Error('anything'))).toBe('Error')
    expect(inequivalenceOf(null)).toBeNull()
  })
})
