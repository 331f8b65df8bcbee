/**
 * Reads the names of companies at the provider, so that people need not know companies by their ids.
 *
 * A name is read in the background after a new grant was stored, and again after a refresh if it is older than a month.
 * The change feed of Intuit does not report such changes. A name that could not be read is tried again after a day. A read
 * that fails changes nothing else: the company is connected all the same.
 */
import { visibleText, isVisibleName } from '@integration-host/shared/contracts/text'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { CredentialStore } from './credential-store.ts'
import type { CustodyDeps } from './custody-deps.ts'
import type { CompanyName } from './labels.ts'

/**
 * Returns the name of a company as the provider sends it; `null` if it cannot be read now, and `undefined` if the address
 * of the accounting API is not known.
 */
export type ReadCompanyName = (
  realm: string,
  accessToken: Secret,
) => Promise<string | null | undefined>

const DAY_MS = 86_400_000
const MONTH_MS = 30 * DAY_MS
const MAX_NAME_LENGTH = 100
/** The maximum number of names that are read at the same time. Further names are read after a later refresh. */
const MAX_READS = 32

const isDue = (company: CompanyName | null, now: number): boolean =>
  company === null || now - company.readAt >= (company.name === null ? DAY_MS : MONTH_MS)

export function createCompanyNames({
  store,
  read,
  now,
  onError,
}: Pick<CustodyDeps, 'store' | 'now' | 'onError'> & { readonly read: ReadCompanyName }) {
  const pending = createPendingWork()
  const reads = new Map<string, Promise<void>>()
  /** The names that are due to be read, by leased credential, so that a refresh needs no further read of the record. */
  const due = new Map<string, CompanyName | null>()

  async function readAndStore(
    name: string,
    accessToken: Secret,
    known: CompanyName | null,
  ): Promise<void> {
    const received = await read(realmOf(name), accessToken)
    if (received === undefined) return
    const text = visibleText(received ?? '', MAX_NAME_LENGTH)
    const company = {
      name: isVisibleName(text) ? text : (known?.name ?? null),
      readAt: now(),
    }
    await store.label(name, { company }, () => {})
  }

  function start(...[name, ...rest]: Parameters<typeof readAndStore>): void {
    if (reads.has(name) || reads.size >= MAX_READS) return
    const reading = pending.add(
      readAndStore(name, ...rest)
        .catch(onError)
        .finally(() => reads.delete(name)),
    )
    reads.set(name, reading)
  }

  /** Forwards all calls to the given store, and reads names after new token pairs were stored. */
  const namingStore: CredentialStore = {
    ...store,

    async put(grant, ...rest) {
      const credential = await store.put(grant, ...rest)
      if (grant.accessToken !== null) start(grant.name, grant.accessToken, credential.company)
      return credential
    },

    async acquire(name, ...rest) {
      const acquired = await store.acquire(name, ...rest)
      due.delete(name)
      if (acquired.kind === 'acquired') {
        const { company } = acquired.leased.credential
        if (isDue(company, now())) due.set(name, company)
      }
      return acquired
    },

    async commit(lease, grant, ...rest) {
      const outcome = await store.commit(lease, grant, ...rest)
      const known = due.get(lease.name)
      if (outcome === 'committed' && grant.accessToken !== null && known !== undefined) {
        due.delete(lease.name)
        start(lease.name, grant.accessToken, known)
      }
      return outcome
    },
  }

  return {
    store: namingStore,

    /** Resolves when the name of this credential is not being read, at the latest after `timeoutMs`. */
    async settled(name: string, timeoutMs: number): Promise<void> {
      const { promise, resolve } = Promise.withResolvers<void>()
      const timer = setTimeout(resolve, timeoutMs)
      await Promise.race([reads.get(name), promise])
      clearTimeout(timer)
    },

    [Symbol.asyncDispose]: () => pending.ended(),
  }
}
