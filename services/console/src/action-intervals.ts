/**
 * The intervals from an action of a person until every open page shows it, in milliseconds. Their sum, together with the
 * requests in between, must stay below two seconds; `action-announcer.test.ts` moves a clock through all of them. The
 * pause between two reads of a page, `ACTION_PAUSE_MS` in app/read-again.ts, belongs to them.
 */

/** The pause between two checks whether a person has acted at another replica of the console. */
export const ACTION_POLL_MS = 500
/** The time that the console has to read the services again before it announces an action to the browsers. */
export const ACTION_READ_MS = 400
