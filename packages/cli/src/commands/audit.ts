import { type AuditHead, AuditPage } from '@integration-host/shared/contracts/audit'
import { type ReadAudit, verifyChain } from '../audit-chain.ts'
import { credentialNames, defineCommand, flags, texts, wholeNumber } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { limitOf, pagesOf, queryOf } from '../paging.ts'
import {
  type Columns,
  counted,
  createProgress,
  createTable,
  notify,
  print,
  widthOf,
} from '../terminal.ts'
import { openTokenService, type ServiceApi } from '../service-api.ts'

const PAGE = 1_000

export const readerOf =
  (service: Pick<ServiceApi, 'get'>): ReadAudit =>
  (after, limit) =>
    service.get(`/audit?after=${after}&limit=${limit}`, AuditPage)

type Entries = AuditPage['items']

/** Yields the pages of the log in order, beginning after the entry `after`. */
export async function* inOrder(read: ReadAudit, after: number): AsyncGenerator<Entries, void> {
  for (let last = after; ;) {
    const { items, head } = await read(last, PAGE)
    yield items
    const end = items.at(-1)
    if (end === undefined || end.Seq >= head.Seq) return
    last = end.Seq
  }
}

/** Yields the pages of the log with the newest entry first. */
const newestFirst = (service: ServiceApi, name: string | undefined, limit: number) =>
  pagesOf(service, {
    path: '/audit',
    query: queryOf({ name }),
    schema: AuditPage,
    limit,
    mostPerPage: PAGE,
  })

const columns: Columns<Entries[number]> = {
  SEQ: 'Seq',
  AT: 'At',
  WHO: 'Who',
  WHAT: 'What',
  NAME: 'Name',
  VERSION: 'Version',
  OUTCOME: 'Outcome',
  COUNT: 'Count',
  'TRACE ID': 'TraceId',
  REASON: 'Reason',
}

export const auditList = defineCommand({
  summary: 'list who did what to which credential, when and with what outcome',
  usage: '[--name ACC-<realm>] [--since SEQ | --newest] [--limit N]',
  help: `Lists the audit log, the oldest entry first. With --json each line is one entry in the form that is hashed.

  --name ACC-<realm>   only entries of this credential
  --since SEQ          only entries from this number on
  --newest             the newest entry first; without --limit the whole log
  --limit N            at most N entries

Examples:
  integration-host audit list --name ACC-9341453908059889
  integration-host audit list --name ACC-9341453908059889 --newest --limit 20
  integration-host audit list --json --since 5001 >> audit.ndjson`,
  options: { ...texts('name', 'since', 'limit'), ...flags('newest') },
  async run({ values, terminal }) {
    const [name] = credentialNames(values.name === undefined ? [] : [values.name])
    const since = wholeNumber('--since', values.since ?? '1')
    const limit = limitOf(values, Number.POSITIVE_INFINITY)
    if (values.newest && values.since !== undefined)
      throw new UsageError('--newest cannot be combined with --since')
    const service = openTokenService(values.url, terminal)
    const table = createTable(columns, widthOf(terminal))
    const pages = values.newest
      ? newestFirst(service, name, limit)
      : inOrder(readerOf(service), Math.max(since - 1, 0))
    let left = limit
    for await (const items of pages) {
      const wanted = items
        .filter((entry) => name === undefined || entry.Name === name)
        .slice(0, left)
      const lines = values.json ? wanted.map((entry) => JSON.stringify(entry)) : table(wanted)
      await print(terminal, ...lines)
      left -= wanted.length
      if (left <= 0) break
    }
  },
})

export const auditVerify = defineCommand({
  summary: 'verify the hash chain of the audit log',
  usage: '[--expect SEQ:HASH]',
  help: `Recomputes the hash chain of the audit log and prints its head as SEQ:HASH. Exit code 1 if an entry was changed,
removed or inserted, 6 if older entries were trimmed before this check, so that the log is not complete. A client that can write to the store could rewrite or truncate the whole log: save the head
elsewhere, and compare with it next time: then only entries after it count as missing. The log keeps the newest
entries (AUDIT_ENTRIES); entries of weight can still be listed after they were trimmed.

  --expect SEQ:HASH   the log must have this entry: the head that an earlier run printed

Examples:
  integration-host audit verify
  integration-host audit verify --expect 4711:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  integration-host audit verify --json | jq -r .Head`,
  options: texts('expect'),
  async run({ values, terminal, output }) {
    const expected = values.expect === undefined ? null : headOf(values.expect)
    const read = readerOf(openTokenService(values.url, terminal))
    const progress = createProgress(terminal)
    const { checked, first, head, missing, broken } = await verifyChain(read, expected, (count) =>
      progress.update(`${count} entries checked`),
    ).finally(() => progress.end())
    const Head = `${head.Seq}:${head.Hash}`
    const Break = broken === null ? null : { Seq: broken.seq, Reason: broken.reason }
    const document = { Checked: checked, First: first, Head, Missing: missing, Break }
    const all = counted(checked, 'audit entry', 'audit entries')
    const entries = counted(missing, 'entry', 'entries')
    const oldest = first ?? head.Seq + 1
    if (broken !== null) {
      if (values.json) await output(document)
      else notify(terminal, `The audit log is broken at entry ${broken.seq}: ${broken.reason}.`)
      return exitCodes.failed
    }
    if (missing === 0) {
      const range = first === null ? '' : `, ${first} to ${head.Seq}`
      await output(document, `${all}${range}: the chain is intact.`, Head)
      return exitCodes.ok
    }
    const sentence = `${entries} before the first of them ${missing === 1 ? 'is' : 'are'} missing.`
    await output(document, `${all}, ${oldest} to ${head.Seq}: ${sentence}`, Head)
    notify(
      terminal,
      expected === null
        ? `The log no longer keeps ${entries} before entry ${oldest}, so the log is not complete; the chain continues from there without a break.`
        : `The log no longer keeps ${entries} after the expected entry ${expected.Seq}, so these were not checked; the chain continues from entry ${oldest} without a break.`,
    )
    return exitCodes.auditGap
  },
})

/** Parses the value of `--expect`. @throws {UsageError} the value does not have the form SEQ:HASH. */
function headOf(text: string): AuditHead {
  const [, seq = '', Hash = ''] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text) ?? []
  if (seq === '') throw new UsageError('--expect must be SEQ:HASH, as audit verify prints it')
  return { Seq: Number(seq), Hash }
}
