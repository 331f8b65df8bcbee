import { limitBody } from '@integration-host/shared/http/limit-body'
import { MAX_TRANSACTION_BYTES } from '../transaction/queueable.ts'

/** Rejects a body that is larger than the maximum size of a transaction. Only a bulk request may have a larger body. */
export const limited = limitBody(() => MAX_TRANSACTION_BYTES)
