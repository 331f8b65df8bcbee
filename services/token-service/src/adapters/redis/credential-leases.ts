/**
 * The Redis commands that decide which process may send a refresh token. A refresh needs the lease of the credential
 * and stores an intent before it sends the token (refresh.ts). An adoption needs a claim (adoption.ts). The scripts are
 * in lease-scripts.ts and intent-scripts.ts.
 */
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import {
  intentOf,
  openCredential,
  openGrantSecrets,
  type StoredFields,
} from '../../credential/credential-record.ts'
import type { CredentialStore, Lease } from '../../credential/credential-store.ts'
import type { StoreCommands } from './commands.ts'
import { keysOf } from './key-names.ts'

/**
 * How long the claim of an adoption (adoption.ts) is kept if the outcome of its last token request is unknown, in
 * milliseconds.
 */
const ADOPTION_KEEP_MS = 24 * 3_600_000

type LeaseMethods = Pick<
  CredentialStore,
  'acquire' | 'renew' | 'release' | 'recordIntent' | 'claimAdoption' | 'endAdoption'
>

/** Returns the methods for leases, intents and claims. `keys` decrypts the credential record that `acquire` returns. */
export function createRedisLeases(
  { script, replicated }: StoreCommands,
  keys: KeyRing,
): LeaseMethods {
  return {
    async acquire(name, owner, leaseMs) {
      const args = { name, owner, leaseMs: String(leaseMs) }
      const reply = (await script('acquire', keysOf(name), args)) as
        | ['absent', string]
        | ['busy']
        | ['acquired', number, number, string[]]
      if (reply[0] === 'absent')
        return { kind: 'absent', removedVersion: reply[1] === '' ? null : Number(reply[1]) }
      if (reply[0] === 'busy') return { kind: 'busy' }
      const [, fence, storeNow, pairs] = reply
      const fields = pairsToFields(pairs)
      const grantId = fields['PutId'] ?? ''
      const lease: Lease = { name, owner, fence, version: Number(fields['Version']), grantId }
      try {
        return {
          kind: 'acquired',
          leased: {
            lease,
            credential: openCredential(keys, name, fields),
            ...openGrantSecrets(keys, name, fields),
            intent: intentOf(fields, storeNow),
          },
        }
      } catch (error) {
        // A record that cannot be decrypted is left unchanged. The lease is released, so that the next caller gets the
        // same error without waiting for the expiry of the lease.
        await script('release', keysOf(name), { holder: holder(lease) })
        throw error
      }
    },

    async renew(lease, leaseMs) {
      const args = { holder: holder(lease), leaseMs: String(leaseMs) }
      return (await script('renew', keysOf(lease.name), args)) === 1
    },

    async release(lease) {
      await script('release', keysOf(lease.name), { holder: holder(lease) })
    },

    async recordIntent(lease, deferralMs) {
      const args = leaseArguments(lease)
      const reply = (await replicated(
        'recordIntent',
        keysOf(lease.name),
        { ...args, deferralMs: String(deferralMs) },
        // If too few replicas acknowledge this intent, the caller does not send the refresh token. The intent is then
        // removed. Otherwise the next refresh would wait for the response to a request that was never sent.
        async (recorded, run) => {
          const [kind, previous] = recorded as IntentReply
          if (kind === 'recorded')
            await run('withdrawIntent', keysOf(lease.name), { ...args, previous })
        },
      )) as IntentReply
      return reply[0] === 'deferred'
        ? { kind: 'deferred', retryAfterMs: reply[1] }
        : { kind: reply[0] }
    },

    async claimAdoption(name, { id, owner }, holdMs) {
      const args = { id, owner }
      const reply = (await replicated(
        'claimAdoption',
        keysOf(name),
        { ...args, holdMs: String(holdMs), keepMs: String(ADOPTION_KEEP_MS) },
        // If too few replicas acknowledge this claim, the caller does not send the refresh token. The claim is then
        // removed, unless it has replaced an earlier claim.
        async (claimed, run) => {
          const [, previous] = claimed as [string, string | number]
          if (previous === '') await run('endAdoption', keysOf(name), args)
        },
      )) as ['claimed', string] | ['busy', number]
      return reply[0] === 'busy'
        ? { kind: 'busy', retryAfterMs: reply[1] }
        : { kind: 'claimed', wasClaimedBefore: reply[1].endsWith(` ${id}`) }
    },

    async endAdoption(name, claim) {
      await script('endAdoption', keysOf(name), { ...claim })
    },
  }
}

/**
 * The reply of the script `recordIntent`. If the new intent was stored, the reply contains the intent that it replaced.
 * If the new intent cannot be stored yet, the reply contains the milliseconds until it can be stored.
 */
type IntentReply = ['recorded', string] | ['lost'] | ['deferred', number]

const holder = (lease: Lease): string => `${lease.owner}:${lease.fence}`

/** Returns the script arguments by which a script checks that the caller still holds the lease. */
export const leaseArguments = (lease: Lease) => ({
  name: lease.name,
  holder: holder(lease),
  fence: String(lease.fence),
  version: String(lease.version),
})

function pairsToFields(pairs: readonly string[]): StoredFields {
  const fields: Record<string, string> = {}
  for (let index = 0; index + 1 < pairs.length; index += 2) {
    fields[pairs[index] ?? ''] = pairs[index + 1] ?? ''
  }
  return fields
}
