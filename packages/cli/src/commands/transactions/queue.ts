import { Priority, Debounce, NotBefore } from '@integration-host/shared/contracts/transaction'
import { Realm } from '@integration-host/shared/contracts/realm'
import { type Command, expectNone, parse, validOption, wholeNumber } from '../../command.ts'
import { exitCodes, UsageError } from '../../exit-code.ts'
import { labelOptions, parseLabels } from '../../label-options.ts'
import { openCoordinator } from '../../service-api.ts'
import {
  Header,
  jsonOf,
  oneId,
  pathOf,
  printOutcome,
  PROCESS_HELP,
  processOption,
  REASON_HELP,
  reasonOf,
  reasonOption,
} from './arguments.ts'
import { queueFile } from './queue-file.ts'

export const queueTransactions: Command = {
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
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      ...reasonOption,
      data: { type: 'string' },
      realm: { type: 'string' },
      tag: labelOptions.tag,
      priority: { type: 'string' },
      'not-before': { type: 'string' },
      debounce: { type: 'string' },
      'debounce-seconds': { type: 'string' },
      'debounce-max-seconds': { type: 'string' },
      file: { type: 'string' },
    })
    if (values.file !== undefined) {
      expectNone(positionals)
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
    const id = oneId(positionals)
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
    await printOutcome(terminal, header, values.json, text)
    return exitCodes.ok
  },
}

/** Returns the `Debounce` of the transaction. @throws {UsageError} an option is missing or not valid. */
function debounceOf(values: {
  readonly debounce?: string | undefined
  readonly 'debounce-seconds'?: string | undefined
  readonly 'debounce-max-seconds'?: string | undefined
}): Debounce | undefined {
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
