/** Estimates the difference between the server's clock and the browser's clock, which may be wrong. */

/** All messages so far show that the difference lies between these two values. */
let leastMs = Number.NEGATIVE_INFINITY
let mostMs = Number.POSITIVE_INFINITY
let offsetMs = 0

/** Returns the server's time in milliseconds since 1970. */
export const serverNow = (): number => Date.now() + offsetMs

/**
 * Updates the estimated difference between the two clocks by the server's time in a message that has just arrived.
 * `sentAt` is the time at which the browser requested the message, if this time is known. The server read its clock
 * between `sentAt` and now. A slow message says little about the difference, so each message only narrows the range of
 * possible differences. RFC 5905, section 8, prefers the shortest round trip for the same reason. If a message
 * contradicts the range, one of the clocks was changed, and a new range begins.
 */
export function setServerTime(serverTime: string, sentAt = Number.NEGATIVE_INFINITY): void {
  const least = Date.parse(serverTime) - Date.now()
  const most = Date.parse(serverTime) - sentAt
  const isContradiction = least > mostMs || most < leastMs
  leastMs = isContradiction ? least : Math.max(least, leastMs)
  mostMs = isContradiction ? most : Math.min(most, mostMs)
  offsetMs = Number.isFinite(mostMs) ? (leastMs + mostMs) / 2 : leastMs
}
