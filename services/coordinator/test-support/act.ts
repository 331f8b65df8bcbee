import type { Act } from '../src/run/action.ts'

/** The context of an action by the key `ops`, without a reason and for any version of the run. */
export const anAct: Act = { by: { keyId: 'ops', person: null }, reason: null, ifVersion: null }
