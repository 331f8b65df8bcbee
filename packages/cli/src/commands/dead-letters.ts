/** The commands on dead letters: list, show, requeue and delete. */
import {
  DeadLetterPage,
  DeadLetterView,
  DeletedDeadLetters,
} from '@integration-host/shared/contracts/operations'
import { z } from 'zod'
import { defineCommand, expectNone, flags, onlyWord, wholeNumber } from '../command.ts'
import { UsageError } from '../exit-code.ts'
import { cursorOptions, DEFAULT_LIMIT, moreByCursor, pagedList } from '../paging.ts'
import { openCoordinator, type ServiceApi } from '../service-api.ts'
import { counted, plain, shortLine } from '../terminal.ts'
import {
  Header,
  PROCESS_HELP,
  processOption,
  processPathOf,
  REASON_HELP,
  reasonOf,
  reasonOption,
} from './transactions/arguments.ts'

const pathOf = async (service: ServiceApi, process: string | undefined): Promise<string> =>
  `${await processPathOf(service, process)}/dead-letters`

export const listDeadLetters = pagedList({
  summary: 'list messages that could not be processed, the newest first',
  usage: '[--process NAME] [--limit N | --all] [--cursor CURSOR]',
  help: `Lists the messages of a process that could not be processed, with the reason and the run that they name, the newest
first. With --json each line is one message.

${PROCESS_HELP}
  --limit N           the maximum number (default ${DEFAULT_LIMIT}); the cursor of the next page is printed on standard error
  --all               all dead letters
  --cursor CURSOR     continue from this cursor

Examples:
  integration-host dead-letters list
  integration-host dead-letters list --all --json | jq -r .Reason | sort | uniq -c`,
  options: { ...processOption, ...cursorOptions },
  pathOf: (service, { values }) => pathOf(service, values.process),
  schema: DeadLetterPage,
  columns: {
    ID: 'ID',
    AT: 'At',
    REASON: 'Reason',
    TRANSACTION: 'TransactionID',
    REPLAY: 'ReplayID',
    STEP: 'StepName',
    BYTES: 'ContentBytes',
    CONTENT: ({ Encoding, Content }) => (Encoding === 'text' ? shortLine(Content) : '(not text)'),
  },
  more: moreByCursor,
})

export const showDeadLetter = defineCommand({
  summary: 'show a message that could not be processed, with its content',
  usage: 'ID [--process NAME]',
  help: `Shows one dead letter with at most the first 64 KiB of its content, in base64 if the content is not text.

${PROCESS_HELP}

Examples:
  integration-host dead-letters show 5
  integration-host dead-letters show 5 --json | jq -r .Content`,
  options: processOption,
  argumentOf: oneId,
  async run({ values, argument: id, terminal, output }) {
    const service = openCoordinator(values.url, terminal)
    const path = await pathOf(service, values.process)
    const letter = await service.get(`${path}/${id}`, DeadLetterView)
    await output(letter, ...linesOf(letter))
  },
})

function linesOf(letter: DeadLetterView): string[] {
  const { TransactionID, ReplayID, StepName, Content, ContentBytes, Encoding } = letter
  const run =
    TransactionID === null ? 'none' : `${TransactionID}, run ${ReplayID}, step ${StepName}`
  const encoding = Encoding === 'text' ? '' : ', in base64'
  return [
    `ID          ${letter.ID}`,
    `Process     ${plain(letter.Process)}`,
    `Reason      ${plain(letter.Reason)}`,
    `At          ${letter.At}`,
    `Message     ${plain(letter.MessageID)}`,
    `Run         ${plain(run)}`,
    `Content     ${counted(ContentBytes, 'byte')}${encoding}`,
    '',
    ...Content.split('\n').map(plain),
  ]
}

export const requeueDeadLetter = defineCommand({
  summary: 'publish the due step of its run again or queue its transaction, and delete the message',
  usage: 'ID [--process NAME] [--reason TEXT]',
  help: `Publishes the step that is due in the run of a dead letter, and deletes the dead letter. The message itself is not
published again. Of a message that starts a run (queue start.<Process>), queues the transaction instead. The command fails if
the dead letter neither names a run nor has a transaction, or if the run has ended.

${PROCESS_HELP}
${REASON_HELP}

Examples:
  integration-host dead-letters requeue 5 --reason 'the step is deployed again'`,
  options: { ...processOption, ...reasonOption },
  argumentOf: oneId,
  async run({ values, argument: id, terminal, output }) {
    const body = { Reason: reasonOf(values.reason) }
    const service = openCoordinator(values.url, terminal)
    const path = await pathOf(service, values.process)
    const run = await service.post(`${path}/${id}/requeue`, body, Header)
    const text = `${run.TransactionID}, run ${run.ReplayID}: step ${run.StepName} is published again.`
    await output(run, plain(text))
  },
})

export const deleteDeadLetters = defineCommand({
  summary: 'delete one message that could not be processed, or all of a process',
  usage: '(ID | --all) [--process NAME] [--reason TEXT]',
  help: `Deletes a dead letter, or with --all every dead letter of the process. No run changes.

${PROCESS_HELP}
  --all               all dead letters of the process
${REASON_HELP}

Examples:
  integration-host dead-letters delete 5 --reason 'a test message'
  integration-host dead-letters delete --all --process OrderProcess --reason 'the publisher is fixed'`,
  options: { ...processOption, ...reasonOption, ...flags('all') },
  argumentOf: (words) => words,
  async run({ values, argument: words, terminal, output }) {
    if (values.all) expectNone(words)
    const id = values.all ? null : oneId(words)
    const request = { method: 'DELETE', body: { Reason: reasonOf(values.reason) } } as const
    const service = openCoordinator(values.url, terminal)
    const path = await pathOf(service, values.process)
    let deleted = 1
    if (id === null) deleted = (await service.send(path, DeletedDeadLetters, request)).data.Deleted
    else await service.send(`${path}/${id}`, z.unknown(), request)
    await output({ Deleted: deleted }, `${counted(deleted, 'dead letter')} deleted.`)
  },
})

/** Returns the only positional argument, the ID of a dead letter. @throws {UsageError} the ID is missing or invalid. */
function oneId(words: readonly string[]): number {
  const id = wholeNumber('The ID', onlyWord(words, 'The ID of a dead letter is needed'))
  if (id < 1) throw new UsageError('The ID must be at least 1')
  return id
}
