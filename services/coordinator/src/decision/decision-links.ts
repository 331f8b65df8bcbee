/**
 * Addresses with which a person decides about an event for which a run waits.
 *
 * K1  An address names run, event, person and expiry, sealed with a key that the installation generates. Nothing else is
 *     stored for it, so an address that was sent can be withdrawn only by ending its run.
 * K2  An address is void when its run is over or replayed, and when it has expired.
 * K3  A GET changes nothing, because mail scanners open addresses. A POST decides once, as an event of the API does.
 * K4  The key is stored as the row `DecisionKey` of `Order_Installation`. With `PAYLOAD_KEYS` it is encrypted, because
 *     with this key, everyone who can read a backup could decide.
 */
import { DecidingPerson, MAX_LINK_SECONDS } from '@integration-host/shared/contracts/decision'
import { ReplayID, TransactionID } from '@integration-host/shared/contracts/transaction'
import { parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import {
  DecryptionError,
  type KeyRing,
  parseKeyRing,
} from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'
import { type InstallationKeyDeps, readInstallationKey } from '../records/installation-key.ts'
import type { RunKey } from '../run/run.ts'

/** What an address names. */
export interface DecisionLink extends RunKey {
  readonly event: string
  readonly person: string
  /** Epoch ms. */
  readonly expiresAt: number
}

export interface DecisionLinksDeps extends InstallationKeyDeps {
  /** Returns the address at which `/decisions/…` is published. */
  readonly baseUrl: () => string
}

/** The path of the pages, which clients request without a key. */
export const DECISIONS_PATH = '/decisions'
const DEFAULT_LINK_MS = 7 * 86_400_000
const MAX_TOKEN_LENGTH = 4_096

/** Returns when an address expires, in epoch ms: it is valid at most for the timeout of its event. */
export function expiryOf(
  seconds: number | undefined,
  timeoutMs: number | null,
  now: number,
): number {
  const wantedMs = seconds === undefined ? DEFAULT_LINK_MS : seconds * 1_000
  return now + Math.ceil(Math.min(wantedMs, timeoutMs ?? MAX_LINK_SECONDS * 1_000))
}

const NAME = 'DecisionKey'
const LINK_PLACE = { name: 'decision', field: 'link', version: 1 }
const Sealed = z.tuple([z.string(), TransactionID, ReplayID, z.string(), DecidingPerson, z.int()])

export type DecisionLinks = ReturnType<typeof createDecisionLinks>

export function createDecisionLinks(deps: DecisionLinksDeps) {
  let keys: KeyRing | null = null

  const readKey = async (): Promise<KeyRing> =>
    parseKeyRing(new Secret(await readInstallationKey(deps, NAME)))

  return {
    /** Reads the key, or generates it. Resolves before `addressOf` is called. */
    async ready(): Promise<void> {
      keys ??= await readKey()
    },
    addressOf(link: DecisionLink): string {
      const { Process, TransactionID: id, ReplayID: replay, event, person, expiresAt } = link
      if (keys === null) throw new Error('the key of the decision links has not been read')
      const text = JSON.stringify([Process, id, replay, event, person, expiresAt])
      // The same link has the same address, because the nonce of a seal with labels is computed from what is sealed. So a step
      // that is repeated sends the same text with the same idempotency key.
      return `${deps.baseUrl()}${DECISIONS_PATH}/${keys.sealWithLabels(text, LINK_PLACE, '')}`
    },
    /** Resolves with the link of a token, which is the last part of an address; `null` if the token is not valid. */
    async read(token: string): Promise<DecisionLink | null> {
      if (token.length > MAX_TOKEN_LENGTH) return null
      keys ??= await readKey()
      try {
        const parsed = Sealed.parse(parseJson(keys.open(token, LINK_PLACE), SERVICE_LIMITS))
        const [Process, id, replay, event, person, expiresAt] = parsed
        return { Process, TransactionID: id, ReplayID: replay, event, person, expiresAt }
      } catch (error) {
        if (error instanceof DecryptionError) return null
        throw error
      }
    },
  }
}
