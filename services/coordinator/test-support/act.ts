import type { Act } from '../src/transaction/action.ts'

/** The context of an action of the key `ops`: without a reason, and on any version of the run. */
export const anAct: Act = { by: { keyId: 'ops', person: null }, reason: null, ifVersion: null }
