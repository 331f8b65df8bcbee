import { generateKeyRing, parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { createPayloads } from '../src/transaction/payload.ts'
import { createSealedSource } from '../src/transaction/sealed-source.ts'
import type { TransactionSource } from '../src/transaction/transaction-source.ts'

/** Returns a transaction source that encrypts the payloads in `source` with a new key. */
export const sealed = (source: TransactionSource): TransactionSource =>
  createSealedSource(source, createPayloads(parseKeyRing(generateKeyRing())))
