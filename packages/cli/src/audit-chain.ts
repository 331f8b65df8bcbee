/**
 * Verifies the hash chain of the audit log. The log is read page by page from its oldest to its newest entry, and every
 * hash is recomputed. The head of the log is the number and the hash of the newest entry.
 *
 * An intact chain does not prove that the log is complete, because a client that can write to the store could rewrite
 * or truncate the whole log. Such a change is found only by a comparison with a head that was saved earlier outside the
 * store.
 */
import {
  type AuditHead,
  type AuditPage,
  auditStart,
  firstBreak,
} from '@integration-host/shared/contracts/audit'

export type ReadAudit = (after: number, limit: number) => Promise<AuditPage>

export interface ChainReport {
  readonly checked: number
  /** The sequence number of the oldest entry in the log; `null` if the log is empty. */
  readonly first: number | null
  /** The newest entry that was checked. */
  readonly head: AuditHead
  /**
   * The number of entries that no verification has checked, because the service trimmed them earlier. The verifications
   * are this run and the run that saved the expected head.
   */
  readonly missing: number
  /** The entry at which the verification failed, and the reason; `null` if the whole chain is intact. */
  readonly broken: { readonly seq: number; readonly reason: string } | null
}

const PAGE = 1_000

/**
 * Verifies the whole chain. `expected` is a head that was saved earlier; `onPage` gets the number of checked entries.
 */
export async function verifyChain(
  read: ReadAudit,
  expected: AuditHead | null,
  onPage: (checked: number) => void,
): Promise<ChainReport> {
  let checked = 0
  let first: number | null = null
  let missing = 0
  let last: AuditHead = auditStart
  let isExpectedMet = expected === null
  /**
   * The head in the previous response, if that response did not contain the entry that the head names; otherwise
   * `null`.
   */
  let unreadHead: number | null = null
  const report = (seq: number, reason: string | null): ChainReport => {
    return { checked, first, head: last, missing, broken: reason === null ? null : { seq, reason } }
  }

  for (;;) {
    const { items, head } = await read(last.Seq, PAGE)
    const [oldest] = items
    if (oldest !== undefined) {
      // The service may trim the oldest entries while this function reads the log. The oldest remaining entry contains
      // the hash of the newest trimmed entry, so the check continues from that hash.
      if (oldest.Seq > last.Seq + 1 && (await isTrimmedBefore(read, oldest.Seq))) {
        const trimmed = oldest.Seq - 1
        // The entries up to the expected head were checked when that head was saved. Therefore they are not missing.
        missing += Math.max(0, trimmed - Math.max(last.Seq, expected?.Seq ?? 0))
        // If the expected head was trimmed, its hash cannot be compared. The remaining chain is still verified.
        if (expected !== null && expected.Seq < trimmed) isExpectedMet = true
        last = { Seq: trimmed, Hash: oldest.Previous }
      }
      first ??= oldest.Seq
    }

    const found = firstBreak(last, items)
    const sound = found === null ? items : items.slice(0, items.indexOf(found.entry))
    if (expected !== null && !isExpectedMet) {
      const same = [last, ...sound].find(({ Seq }) => Seq === expected.Seq)
      if (same !== undefined && same.Hash !== expected.Hash)
        return report(expected.Seq, 'it differs from the expected entry')
      isExpectedMet = same !== undefined
    }
    checked += sound.length
    const end = sound.at(-1) ?? last
    last = { Seq: end.Seq, Hash: end.Hash }
    onPage(checked)
    if (found !== null) return report(found.entry.Seq, found.reason)

    if (last.Seq === head.Seq) {
      if (last.Hash !== head.Hash) return report(last.Seq, 'the head of the log has another hash')
      return expected === null || isExpectedMet
        ? report(last.Seq, null)
        : report(expected.Seq, `it is missing: the log ends with entry ${last.Seq}`)
    }
    if (items.length > 0) continue
    // The service reads the entries of a page first and the head afterwards. If an entry is written between these two
    // reads, the head names an entry that only the next page contains. Therefore the next page is read before the head
    // is reported as wrong.
    if (head.Seq < last.Seq || unreadHead !== null)
      return report(
        head.Seq,
        `the log ends with entry ${last.Seq}, although its head is this entry`,
      )
    unreadHead = head.Seq
  }
}

async function isTrimmedBefore(read: ReadAudit, seq: number): Promise<boolean> {
  const { items } = await read(0, 1)
  return (items[0]?.Seq ?? 0) >= seq
}
