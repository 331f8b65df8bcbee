/**
 * Values and leases that exist once per installation. A lease is a row of `"Order_Installation"` instead of an advisory
 * lock of a session, because behind a pooler in transaction mode a session does not belong to one client.
 */
import type { TransactionSource } from '../run/transaction-source.ts'
import { changeRow, iso, type NewAction, type RecordKind } from './records.ts'

type Source = Pick<TransactionSource, 'records'>

export interface InstallationRow<Value = unknown> {
  readonly Name: string
  readonly Value: Value
}

/** The values whose names begin with `prefix`. */
export const installation = <Value>(prefix: string): RecordKind<InstallationRow<Value>> => ({
  table: 'Order_Installation',
  key: ['Name'],
  prefix,
})

/** Reads and changes the values whose names begin with `prefix`. Each is named by the rest of its name. */
export function installationValues<Value>(source: Source, prefix: string) {
  const records = source.records(installation<Value>(prefix))
  return {
    now: () => records.now(),
    get: async (name: string): Promise<Value | undefined> =>
      (await records.rows(prefix + name))[0]?.Value,
    /** Returns all values by their names, in the order of these. */
    all: async (): Promise<ReadonlyMap<string, Value>> =>
      new Map((await records.rows()).map(({ Name, Value }) => [Name.slice(prefix.length), Value])),
    /** Changes a value as `changeRow` changes a row: `undefined` stands for a value that does not exist. */
    async change(
      name: string,
      next: (
        value: Value | undefined,
        now: number,
      ) => Value | undefined | Promise<Value | undefined>,
      actionOf?: (now: number, before: Value | undefined) => NewAction,
    ): Promise<Value | undefined> {
      const row = await changeRow(
        records,
        [prefix + name],
        async (known, now) => {
          const after = await next(known?.Value, now)
          if (after === undefined) return undefined
          return after === known?.Value ? known : { Name: prefix + name, Value: after }
        },
        actionOf && ((now, before) => actionOf(now, before?.Value)),
      )
      return row?.Value
    },
  }
}

/** The members of a value that a lease protects. */
interface Lease {
  readonly Owner: string
  /** The end of the lease, an ISO 8601 time, as is the next one. */
  readonly Until: string
  readonly RenewedAt: string
}
type Leased<Value> = Value & Lease

/** A value that one owner at a time changes, under a lease. */
export function leasedValue<Value extends object>(source: Source, name: string, leaseMs: number) {
  const values = installationValues<Leased<Value>>(source, name)
  const leaseOf = (Owner: string, now: number): Lease => ({
    Owner,
    Until: iso(now + leaseMs),
    RenewedAt: iso(now),
  })
  return {
    get: () => values.get(''),
    /**
     * Acquires the lease, and stores the value that `next` returns. Resolves with false, without a change, if another
     * owner has the lease, or if `next` returns `null`.
     */
    async begin(
      owner: string,
      next: (known: Leased<Value> | undefined, now: number) => Value | null,
    ): Promise<boolean> {
      let isBegun = false
      await values.change('', (known, now) => {
        const value = next(known, now)
        const isFree =
          known === undefined || known.Owner === owner || Date.parse(known.Until) <= now
        isBegun = isFree && value !== null
        return isFree && value !== null ? { ...value, ...leaseOf(owner, now) } : known
      })
      return isBegun
    },
    /**
     * Stores the value that `next` returns, and renews the lease, unless the value has an end of its own. Resolves with
     * false, without a change, if another owner has the lease now.
     */
    async keep(
      owner: string,
      next: (known: Leased<Value>, now: number) => Value & Partial<Lease>,
    ): Promise<boolean> {
      const after = await values.change('', (known, now) =>
        known?.Owner === owner ? { ...known, ...leaseOf(owner, now), ...next(known, now) } : known,
      )
      return after?.Owner === owner
    },
  }
}
