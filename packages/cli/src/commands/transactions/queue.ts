import { NotBefore } from '@integration-host/shared/contracts/start-time'
import { Realm } from '@integration-host/shared/contracts/realm'
import { type Command, expectNone, parse, validOption } from '../../command.ts'
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
    '(ID [--data JSON] [--realm REALM] [--tag NAME=VALUE]… [--not-before TIME] [--reason TEXT] | --file FILE)',
  help: `Queues a transaction. The same id with the same data, realm and tags is not an error; with others it is rejected.

${PROCESS_HELP}
  --data JSON         the initial data (default: the id as a string)
  --realm REALM       the realm id of the company
  --tag NAME=VALUE    a tag for searches; up to 10
  --not-before TIME   the run does not start before this time: RFC 3339, or a number of seconds from now
${REASON_HELP}
  --file FILE         each line is a transaction: {"TransactionID": "1", "InitialData": …, "Realm": "…", "Tags": {…}, "NotBefore": …, "Reason": "…"}

Examples:
  integration-host transactions queue 66
  integration-host transactions queue inv-7 --process InvoiceProcess --data '{"Amount": 12.5}' --realm 9341453908059889
  integration-host transactions queue 68 --not-before 2027-01-31T02:00:00-05:00
  integration-host transactions queue --file orders.ndjson`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      ...reasonOption,
      data: { type: 'string' },
      realm: { type: 'string' },
      tag: labelOptions.tag,
      'not-before': { type: 'string' },
      file: { type: 'string' },
    })
    if (values.file !== undefined) {
      expectNone(positionals)
      if (
        [values.data, values.realm, values.tag, values['not-before'], values.reason].some(
          (value) => value !== undefined,
        )
      )
        throw new UsageError(
          '--file cannot be combined with --data, --realm, --tag, --not-before or --reason: each line of the file has its own',
        )
      const service = openCoordinator(values.url, terminal)
      const path = await pathOf(service, values.process)
      return queueFile(values.file, service, path, values.json === true, terminal)
    }
    const id = oneId(positionals)
    const realm = validOption('--realm', Realm.optional(), values.realm)
    const Reason = reasonOf(values.reason)
    const given = values['not-before']
    const start = given !== undefined && /^\d+$/.test(given) ? Number(given) : given
    const notBefore = validOption('--not-before', NotBefore.optional(), start)
    const { tags: Tags } = parseLabels({ tag: values.tag })
    const InitialData = values.data === undefined ? id : jsonOf(values.data)
    const service = openCoordinator(values.url, terminal)
    const { status, data: header } = await service.postForStatus(
      await pathOf(service, values.process),
      { TransactionID: id, InitialData, Realm: realm, Tags, NotBefore: notBefore, Reason },
      Header,
    )
    const text =
      status === 202
        ? `${id} is queued${header.NotBefore ? `, and starts at ${header.NotBefore}` : ''}.`
        : `${id} was queued before, its status is ${header.Status}.`
    await printOutcome(terminal, header, values.json, text)
    return exitCodes.ok
  },
}
