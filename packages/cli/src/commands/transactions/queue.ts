import { readFile } from 'node:fs/promises'
import { Debounce, NotBefore, Priority } from '@integration-host/shared/contracts/transaction'
import { Realm } from '@integration-host/shared/contracts/realm'
import { OWN_TEXT, parseJson, trimmedJson } from '@integration-host/shared/json'
import { reasonOf as causeOf } from '@integration-host/shared/observability/health'
import { z } from 'zod'
import { defineCommand, expectNone, lists, texts, validOption, wholeNumber } from '../../command.ts'
import { CommandFailed, exitCodes, UsageError } from '../../exit-code.ts'
import { parseLabels } from '../../label-options.ts'
import { JSON_LINES, openCoordinator, type ServiceApi } from '../../service-api.ts'
import { createProgress, notify, plain, print, type Terminal } from '../../terminal.ts'
import {
  Header,
  jsonOf,
  oneId,
  pathOf,
  PROCESS_HELP,
  processOption,
  REASON_HELP,
  reasonOf,
  reasonOption,
} from './arguments.ts'

const debounceOptions = texts('debounce', 'debounce-seconds', 'debounce-max-seconds')

export const queueTransactions = defineCommand({
  summary: 'queue a transaction, or a file of transactions',
  usage:
    '(ID [--data JSON] [--realm REALM] [--tag NAME=VALUE]… [--priority high] [--not-before TIME | --debounce KEY --debounce-seconds N] [--reason TEXT] | --file FILE)',
  help: `Queues a transaction. The same id with the same data, realm and tags is not an error; with others it is rejected.

${PROCESS_HELP}
  --data JSON         the initial data (default: the id as a string)
  --realm REALM       the realm id of the company
  --tag NAME=VALUE    a tag for searches; up to 10
  --priority PRIORITY high or normal (default): runs with high get their turns before the others
  --not-before TIME   the run does not start before this time: RFC 3339, or a number of seconds from now
  --debounce KEY      transactions with this key, process and realm start one run, with the data of the last one
  --debounce-seconds N       the run starts so many seconds after the last one
  --debounce-max-seconds N   and at most so many after the first one (default: 10 times --debounce-seconds)
${REASON_HELP}
  --file FILE         each line is a transaction: {"TransactionID": "1", "InitialData": …, "Realm": "…", "Tags": {…}, "Priority": "high", "NotBefore": …, "Debounce": {…}, "Reason": "…"}

Examples:
  integration-host transactions queue 66
  integration-host transactions queue inv-7 --process InvoiceProcess --data '{"Amount": 12.5}' --realm 9341453908059889
  integration-host transactions queue 68 --not-before 2027-01-31T02:00:00-05:00
  integration-host transactions queue inv-7 --debounce inv-7 --debounce-seconds 30
  integration-host transactions queue --file orders.ndjson`,
  options: {
    ...processOption,
    ...reasonOption,
    ...texts('data', 'realm', 'priority', 'not-before', 'file'),
    ...lists('tag'),
    ...debounceOptions,
  },
  argumentOf: (words) => words,
  async run({ values, argument: words, terminal, output }) {
    if (values.file !== undefined) {
      expectNone(words)
      const { file: _file, process: _process, url: _url, json: _json, ...own } = values
      const [combined] = Object.keys(own)
      if (combined !== undefined)
        throw new UsageError(
          `--file cannot be combined with --${combined}: each line of the file has its own`,
        )
      const service = openCoordinator(values.url, terminal)
      const path = await pathOf(service, values.process)
      return queueFile(values.file, service, path, values.json === true, terminal)
    }
    const id = oneId(words)
    const realm = validOption('--realm', Realm.optional(), values.realm)
    const priority = validOption('--priority', Priority.optional(), values.priority)
    const Reason = reasonOf(values.reason)
    const given = values['not-before']
    const start = given !== undefined && /^\d+$/.test(given) ? Number(given) : given
    const notBefore = validOption('--not-before', NotBefore.optional(), start)
    const debounce = debounceOf(values)
    if (debounce !== undefined && notBefore !== undefined)
      throw new UsageError('--debounce cannot be combined with --not-before')
    const { tags: Tags } = parseLabels({ tag: values.tag })
    const InitialData = values.data === undefined ? id : jsonOf(values.data)
    const service = openCoordinator(values.url, terminal)
    const path = await pathOf(service, values.process)
    const { status, data: header } = await service.send(path, Header, {
      method: 'POST',
      body: {
        TransactionID: id,
        InitialData,
        Realm: realm,
        Tags,
        Priority: priority,
        NotBefore: notBefore,
        Debounce: debounce,
        Reason,
      },
    })
    const text =
      header.TransactionID !== id
        ? `${id} is absorbed by ${header.TransactionID}, which starts at ${header.NotBefore}.`
        : status === 202
          ? `${id} is queued${header.NotBefore ? `, and starts at ${header.NotBefore}` : ''}.`
          : `${id} was queued before, its status is ${header.Status}.`
    await output(header, plain(text))
    return exitCodes.ok
  },
})

/** Returns the `Debounce` of the transaction. @throws {UsageError} an option is missing or not valid. */
function debounceOf(
  values: Readonly<Partial<Record<keyof typeof debounceOptions, string | undefined>>>,
): Debounce | undefined {
  const { debounce: Key, 'debounce-seconds': seconds, 'debounce-max-seconds': max } = values
  if (Key === undefined && seconds === undefined && max === undefined) return undefined
  if (Key === undefined || seconds === undefined)
    throw new UsageError('--debounce and --debounce-seconds belong together')
  const given = {
    Key,
    Seconds: wholeNumber('--debounce-seconds', seconds),
    ...(max !== undefined && { MaxSeconds: wholeNumber('--debounce-max-seconds', max) }),
  }
  return validOption('--debounce', Debounce, given)
}

/** The limits of one request, slightly below the limits that the coordinator enforces. */
const MOST_LINES = 10_000
const MOST_BYTES = 11 * 1_048_576

const BulkResponse = z.object({
  queued: z.int(),
  exists: z.int(),
  results: z.array(
    z.object({
      line: z.int(),
      TransactionID: z.string().nullable(),
      outcome: z.enum(['queued', 'absorbed', 'exists', 'conflict', 'invalid']),
      code: z.string().optional(),
      errors: z.array(z.string()).optional(),
    }),
  ),
})

interface Line {
  /** The number of the line in the file, from 1. */
  readonly number: number
  readonly text: string
}

/**
 * Queues a transaction for each line of a file, and reports the rejected lines. A transaction that was queued before is
 * not an error, so after an interruption the whole file can be queued again.
 *
 * @throws {CommandFailed} the file cannot be read or sent, or a request to the coordinator failed.
 */
async function queueFile(
  file: string,
  service: ServiceApi,
  path: string,
  isJson: boolean,
  terminal: Terminal,
): Promise<number> {
  const lines = linesOf(await readText(file))
  const bad = lines.filter(({ text }) => !isParseable(text))
  if (bad[0] !== undefined)
    throw new UsageError(`${file}, line ${bad[0].number}: is not JSON; nothing was queued`)
  if (lines.length === 0) throw new UsageError(`${file} has no transactions`)
  const counts = { queued: 0, exists: 0, refused: 0 }
  const progress = createProgress(terminal)
  for (const batch of batchesOf(lines)) {
    // The lines are sent unchanged, because parsing and serialising them would lose digits of large numbers.
    const { data: response } = await service
      .send(`${path}/bulk`, BulkResponse, {
        method: 'POST',
        text: { type: JSON_LINES, content: batch.map(({ text }) => text).join('\n') },
      })
      .finally(() => progress.end())
    counts.queued += response.queued
    counts.exists += response.exists
    for (const { line, TransactionID, outcome, code = outcome, errors = [] } of response.results) {
      const isAccepted = outcome === 'queued' || outcome === 'absorbed' || outcome === 'exists'
      if (outcome === 'absorbed') counts.queued += 1
      if (!isAccepted) counts.refused += 1
      const number = batch[line - 1]?.number ?? 0
      if (isJson)
        await print(
          terminal,
          JSON.stringify({ Line: number, TransactionID, Outcome: outcome, Errors: errors }),
        )
      else if (!isAccepted)
        notify(
          terminal,
          plain(`Line ${number}, ${TransactionID ?? 'no id'}: ${[code, ...errors].join('; ')}`),
        )
    }
    progress.update(`${counts.queued + counts.exists + counts.refused} of ${lines.length}`)
  }
  progress.end()
  if (!isJson)
    await print(
      terminal,
      `${counts.queued} queued, ${counts.exists} existed before, ${counts.refused} rejected`,
    )
  return counts.refused === 0 ? exitCodes.ok : exitCodes.failed
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    throw new CommandFailed(exitCodes.usage, `${file} cannot be read (${causeOf(error)}).`)
  }
}

const linesOf = (text: string): Line[] =>
  text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .map((line, index) => ({ number: index + 1, text: trimmedJson(line) }))
    .filter(({ text: line }) => line !== '')

const isParseable = (text: string): boolean => parseJson(text, OWN_TEXT) !== undefined

function* batchesOf(lines: readonly Line[]): Generator<readonly Line[]> {
  let batch: Line[] = []
  let bytes = 0
  for (const line of lines) {
    const size = Buffer.byteLength(line.text) + 1
    if (batch.length === MOST_LINES || (bytes + size > MOST_BYTES && batch.length > 0)) {
      yield batch
      batch = []
      bytes = 0
    }
    batch.push(line)
    bytes += size
  }
  if (batch.length > 0) yield batch
}
