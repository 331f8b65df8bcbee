import type { Logger } from '@integration-host/shared/observability/logger'
import { systemClock } from '@integration-host/shared/process/clock'
import {
  generateKeyRing,
  type KeyRing,
  parseKeyRing,
} from '@integration-host/shared/secrets/envelope'
import { until } from '@integration-host/shared/test-support/eventually'
import { createPayloads } from '../src/run/payload.ts'
import { createResealingPasses, type ResealingProgress } from '../src/resealing/resealing.ts'
import { createSealedSource } from '../src/run/sealed-source.ts'
import type { TransactionSource } from '../src/run/transaction-source.ts'
import { startResealing } from '../src/resealing/resealing.ts'

/** Returns a transaction source that encrypts the payloads in `source` with a new key. */
export const sealed = <Source extends TransactionSource>(source: Source): Source => ({
  ...source,
  ...createSealedSource(source, createPayloads(parseKeyRing(generateKeyRing()))),
})

/** Runs resealing passes, which encrypt payloads with the active key of `keys`, until a pass replaces no payload. */
export async function reseal(
  source: TransactionSource,
  keys: KeyRing,
  log: Logger,
): Promise<readonly ResealingProgress[]> {
  const seen: ResealingProgress[] = []
  const resealing = startResealing({
    source,
    passes: createResealingPasses(source),
    keys,
    owner: 'replica',
    log,
    clock: systemClock,
    random: () => 0,
    intervalMs: 10,
    onProgress: (progress) => progress !== null && seen.push(progress),
  })
  await until(() => seen.at(-1)?.isDone === true)
  await resealing[Symbol.asyncDispose]()
  return seen
}
