/** The ids of children: `<parent id>/<parent process>.<place>/<item id>`. */
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { createHash } from 'node:crypto'
import type { RunKey } from './run.ts'

/** The longest id of a transaction. */
const MAX_TRANSACTION_ID = 128
/** The longest id of an item. */
export const MAX_ITEM_ID = 64
const KEPT_CHARACTERS = 40
const HASH_DIGITS = 20

/**
 * Returns how the ids of the children of a place begin: `<parent id>/<parent process>.<place>/`, with `~<ReplayID>` after
 * the parent id for a replay.
 */
export const childPrefix = ({ Process, TransactionID: id, ReplayID }: RunKey, place: string) =>
  `${id}${ReplayID === 0 ? '' : `~${ReplayID}`}/${Process}.${place}/`

/**
 * Returns the id of a child. If it would be too long, everything before the id of the item is shortened to the first 40
 * characters of the parent's id, `~`, and 20 hexadecimal digits of the SHA-256 of the rest.
 */
export function childId(prefix: string, itemId: string): string {
  const id = `${prefix}${itemId}`
  if (id.length <= MAX_TRANSACTION_ID) return id
  const kept = keptOf(prefix)
  const rest = prefix.slice(kept.length, -1)
  const digits = createHash('sha256').update(rest).digest('hex').slice(0, HASH_DIGITS)
  return `${kept}~${digits}/${itemId}`
}

/** Returns how the ids of all children of a place begin, whether they were shortened or not. */
export const commonPrefix = (prefix: string): string =>
  prefix.length <= MAX_TRANSACTION_ID - MAX_ITEM_ID ? prefix : keptOf(prefix)

/** Returns the first characters of the id of the parent. A pair of surrogates must not be cut in two. */
function keptOf(prefix: string): string {
  const cut = prefix.slice(0, KEPT_CHARACTERS)
  return cut.isWellFormed() ? cut : cut.slice(0, -1)
}

/** Returns the id of the item from which a child was made. */
export const itemIdOf = (prefix: string, id: string): string =>
  id.startsWith(prefix)
    ? id.slice(prefix.length)
    : id.slice(keptOf(prefix).length + '~/'.length + HASH_DIGITS)

/** Returns why a child cannot have this id, or `null` if it can. */
export const childIdProblem = (id: string): string | null =>
  TransactionID.safeParse(id).success
    ? null
    : `the child would have the id ${id}, which no run can have`
