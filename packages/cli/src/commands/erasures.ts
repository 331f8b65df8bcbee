/** The command that erases the data of runs. */
import { ErasureResult } from '@integration-host/shared/contracts/operations'
import { defineCommand, flags, lists, texts } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { openCoordinator } from '../service-api.ts'
import { counted, notify } from '../terminal.ts'
import { REASON_HELP, reasonOf, reasonOption, transactionId } from './transactions/arguments.ts'

export const startErasure = defineCommand({
  summary: 'erase the data of the ended runs of a company, or of some transactions',
  usage:
    '(--realm REALM [--process NAME] [--cancel-waiting] | --process NAME --id ID…) [--reason TEXT]',
  help: `Erases initial data, tags, responses, item data and errors of runs that have ended, and removes their files. This
cannot be undone. Ids, statuses, times and error classes remain, so that a late duplicate is not run again. No run is
cancelled, except with --cancel-waiting: runs that have not ended keep their data, and their number is printed.

  --realm REALM       every run of this company
  --process NAME      with --realm: only the runs of this process; with --id: the process of these transactions
  --id ID             every run of this transaction; may be repeated
  --cancel-waiting    with --realm: first cancel the runs that wait for an event, a change or the end of a pause
${REASON_HELP}

Exit code 1: some data is left, because runs have not ended or a file could not be removed.

Examples:
  integration-host erasures start --realm 9341453908059889 --reason 'request 7 of the company'
  integration-host erasures start --process OrderProcess --id order-7 --id order-8`,
  options: {
    ...reasonOption,
    ...texts('realm', 'process'),
    ...lists('id'),
    ...flags('cancel-waiting'),
  },
  async run({ values, terminal, output }) {
    const { realm, process, id: ids } = values
    if ((realm === undefined) === (ids === undefined))
      throw new UsageError('Select the runs: give --realm, or --process with --id')
    if (ids !== undefined && process === undefined) throw new UsageError('--id needs --process')
    const { 'cancel-waiting': cancelsWaiting } = values
    if (cancelsWaiting === true && realm === undefined)
      throw new UsageError('--cancel-waiting needs --realm')
    const body = {
      Realm: realm,
      Process: process,
      Ids: ids?.map((id) => transactionId('--id', id)),
      CancelWaiting: cancelsWaiting,
      Reason: reasonOf(values.reason),
    }
    const service = openCoordinator(values.url, terminal)
    const total = { erased: 0, files: 0 }
    for (;;) {
      const result = await service.post('/erasures', body, ErasureResult)
      total.erased += result.erased
      total.files += result.files
      if (result.more) {
        notify(terminal, `${counted(total.erased, 'run')} erased so far…`)
        continue
      }
      const { notEnded, filesLeft, unknown } = result
      const left = [
        unknown > 0 && `Ids without a run: ${unknown}.`,
        notEnded > 0 && `Runs that have not ended: ${notEnded}. Repeat the command when they have.`,
        filesLeft > 0 &&
          `Runs whose files were not removed: ${filesLeft}. See the log of the coordinator.`,
      ]
      await output(
        { ...result, ...total },
        `${counted(total.erased, 'run')} erased, ${counted(total.files, 'file')} removed.`,
        ...left.filter((line) => line !== false),
      )
      return notEnded + filesLeft > 0 ? exitCodes.failed : exitCodes.ok
    }
  },
})
