/** Estimates the difference between the server's clock and the browser's clock, which may be wrong. */

/** The least and the greatest difference that the messages so far permit. */
let leastMs = Number.NEGATIVE_INFINITY
let mostMs = Number.POSITIVE_INFINITY
let offsetMs = 0

/** Returns the server's time in milliseconds since 1970. */
export const serverNow = (): number => Date.now() + offsetMs

/**
 * Takes over the server's time from a message that has just arrived. The server read its clock after `sentAt`, the time
 * by the browser's clock at which the message was requested, if that is known. A message that was slow says little
 * about the clock, so each message only narrows the range of possible differences (RFC 5905, section 8, prefers the
 * shortest round trip for the same reason). If a message contradicts the range, one of the clocks was set.
 */
export function setServerTime(serverTime: string, sentAt = Number.NEGATIVE_INFINITY): void {
  const least = Date.parse(serverTime) - Date.now()
  const most = Date.parse(serverTime) - sentAt
  const isContradiction = least > mostMs || most < leastMs
  leastMs = isContradiction ? least : Math.max(least, leastMs)
  mostMs = isContradiction ? most : Math.min(most, mostMs)
  offsetMs = Number.isFinite(mostMs) ? (leastMs + mostMs) / 2 : leastMs
}
