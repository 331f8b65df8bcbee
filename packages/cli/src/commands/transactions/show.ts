import { TransactionView } from '@integration-host/shared/contracts/transaction'
import { type Command, parse } from '../../command.ts'
import { exitCodes } from '../../exit-code.ts'
import { labelled } from '../../fault-lines.ts'
import { openCoordinator } from '../../service-api.ts'
import { createTable, print } from '../../terminal.ts'
import {
  forOperators,
  type Header,
  oneId,
  pathOf,
  PROCESS_HELP,
  processOption,
  replayQuery,
} from './arguments.ts'

const Run = TransactionView.extend(forOperators)

export const showTransaction: Command = {
  summary: 'show one run with its steps and every attempt',
  usage: 'ID [--replay N]',
  help: `Shows one run of a transaction with its steps and every attempt.

${PROCESS_HELP}
  --replay N          the ReplayID of the run (default: the latest run)

Examples:
  integration-host transactions show 66
  integration-host transactions show 66 --replay 0 --json | jq '.Items[].ResponseBody'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, { ...processOption, replay: { type: 'string' } })
    const id = oneId(positionals)
    const query = replayQuery(values.replay)
    const service = openCoordinator(values.url, terminal)
    const path = await pathOf(service, values.process)
    const run = await service.get(`${path}/${encodeURIComponent(id)}${query}`, Run)
    if (values.json) {
      await print(terminal, JSON.stringify(run))
      return exitCodes.ok
    }
    const { Items, Attempts } = run
    await print(terminal, ...headerLines(run))
    if (Items.length > 0)
      await print(
        terminal,
        '',
        ...createTable(['STEP', 'STATUS', 'ATTEMPT', 'ANSWER', 'FINISHED', 'ERROR'])(
          Items.map((item) => [
            item.StepName,
            item.Status,
            String(item.Attempt),
            String(item.ResponseStatus ?? ''),
            item.FinishedAt ?? '',
            item.Error ?? '',
          ]),
        ),
      )
    if (Attempts.length > 0)
      await print(
        terminal,
        '',
        ...createTable(['ATTEMPT', 'STEP', 'OUTCOME', 'ANSWER', 'STARTED', 'FINISHED', 'ERROR'])(
          Attempts.map((attempt) => [
            String(attempt.Attempt),
            attempt.StepName,
            attempt.Outcome,
            String(attempt.ResponseStatus ?? ''),
            attempt.StartedAt,
            attempt.FinishedAt ?? '',
            attempt.Error ?? '',
          ]),
        ),
      )
    return exitCodes.ok
  },
}

const headerLines = (header: Header): string[] =>
  [
    ['Transaction', header.TransactionID],
    ['Process', header.Process],
    ['Replay', String(header.ReplayID)],
    ['Version', String(header.Version)],
    ['Status', header.Status],
    ['Step', header.StepName],
    ['Initial data', JSON.stringify(header.InitialData)],
    ['Realm', header.Realm],
    ['Waits for', header.WaitingFor],
    ['Next attempt', header.NextAttemptAt],
    ['Error', header.LastError],
    ['Created', header.CreatedAt],
    ['Updated', header.UpdatedAt],
    ['Completed', header.CompletedAt],
  ].flatMap(([label = '', text]) => (text ? [labelled(label ?? '', text)] : []))
