import { createHash } from 'node:crypto'
import type { Step } from 'integration-host'

/** Creates one invoice by a batch whose `bId` has the length of a UUID, so that the gateway adds no `requestid`. */
export const batchOf = ({ realm, transactionId, idempotencyKey }: Step) => ({
  url: `/v3/company/${realm}/batch`,
  method: 'POST',
  body: {
    BatchItemRequest: [
      {
        bId: createHash('sha256').update(idempotencyKey).digest('hex').slice(0, 36),
        operation: 'create',
        Invoice: { DocNumber: transactionId },
      },
    ],
  },
})
