import type { Act } from '../src/transaction/action.ts'

/** An action of the key `ops`, without reason, on whatever version the run has. */
export const anAct: Act = { by: { keyId: 'ops', person: null }, reason: null, ifVersion: null }
