import { z } from 'zod'
import { defineCommand, flags, texts } from '../../command.ts'
import { CommandFailed, exitCodes } from '../../exit-code.ts'
import { createLinesFile } from '../../export-file.ts'
import { queryOf } from '../../paging.ts'
import { openCoordinator, type ServiceApi } from '../../service-api.ts'
import { counted, createProgress, notify, plain, print } from '../../terminal.ts'
import { timeOf } from '../../times.ts'

/**
 * The cursor line, which follows every 1,000 runs. A complete response ends with a cursor line whose `next_cursor`
 * is null.
 */
const CursorLine = z.object({ next_cursor: z.string().nullable(), Until: z.string() })
/**
 * A received run. Only the members that identify the run are validated, so that an archive does not depend on the
 * version of this program.
 */
const Run = z.looseObject({ Process: z.string(), TransactionID: z.string(), ReplayID: z.int() })
const Line = z.union([CursorLine, Run])

/** After this number of consecutive requests without a received line, an interrupted export fails. */
const MAX_TRIES = 5

export const exportTransactions = defineCommand({
  summary: 'export finished runs with their results, for an archive',
  usage:
    '[--since TIME] [--until TIME] [--process NAME] [--file FILE] [--cursor CURSOR] [--ndjson]',
  help: `Writes a JSON line for each finished run with its items and attempts, in the order in which the runs of a process
ended. Runs of the last minute are left out. Use the time that the command prints at its end as --since of the next
export. A run that is resumed later is exported again when it ends again. If the connection breaks, the command continues
the export.

  --since TIME        only runs that ended at this time or later: 2026-01-31T08:00:00Z, or 2h or 3d ago
  --until TIME        only runs that ended before this time, in the same form
  --process NAME      only runs of this process (default: all processes)
  --file FILE         a new file that only its owner can read (default: standard output)
  --cursor CURSOR     continue an export that failed; the other options must be the same
  --ndjson            the format: JSON lines, which is the only one and the default

Examples:
  integration-host transactions export --since 2026-01-01T00:00:00Z --until 2026-02-01T00:00:00Z --ndjson --file january.ndjson
  integration-host transactions export --process OrderProcess | gzip > orders.ndjson.gz`,
  options: { ...texts('since', 'until', 'process', 'file', 'cursor'), ...flags('ndjson') },
  async run({ values, terminal }) {
    const time = (name: 'since' | 'until') =>
      values[name] === undefined
        ? undefined
        : timeOf(`--${name}`, values[name], terminal.wallClock())
    const { process, cursor } = values
    const query = queryOf({ since: time('since'), until: time('until'), process, cursor })
    const service = openCoordinator(values.url, terminal)
    const file = values.file === undefined ? null : await createLinesFile(values.file)
    const progress = createProgress(terminal)
    let count = 0
    let until = ''
    const state = { cursor: cursor ?? null }
    try {
      for await (const line of linesOf(service, query, state)) {
        if (isCursor(line)) {
          until = line.Until
          continue
        }
        const text = JSON.stringify(line)
        await (file === null ? print(terminal, text) : file.append(text))
        count += 1
        progress.update(counted(count, 'run'))
      }
      await file?.finish()
    } catch (error) {
      progress.end()
      await file?.discard()
      if (!(error instanceof CommandFailed)) throw error
      const next =
        state.cursor === null
          ? 'Repeat the command.'
          : `Continue with --cursor ${plain(state.cursor)}`
      const hint = file === null ? next : 'The file is removed. Repeat the command.'
      throw new CommandFailed(
        error.exitCode,
        `${error.message}\nThe export is not complete after ${counted(count, 'run')}. ${hint}`,
      )
    }
    progress.end()
    notify(
      terminal,
      `${counted(count, 'run')}. The next export begins with --since ${plain(until)}`,
    )
  },
})

type Line = z.output<typeof Line>
const isCursor = (line: Line): line is z.output<typeof CursorLine> => 'next_cursor' in line

/**
 * Yields the lines of an export until the last one. If the connection breaks, the export is continued after the last
 * cursor, which is stored in `state`. The continued response repeats the runs after this cursor; a run that was already
 * yielded is not yielded a second time.
 */
async function* linesOf(
  service: ServiceApi,
  query: URLSearchParams,
  state: { cursor: string | null },
): AsyncGenerator<Line> {
  let received = new Set<string>()
  for (let tries = 1; ;) {
    if (state.cursor !== null) query.set('cursor', state.cursor)
    try {
      for await (const line of service.lines(`/transactions/export?${query.toString()}`, Line)) {
        tries = 1
        if (isCursor(line)) {
          state.cursor = line.next_cursor
          received = new Set()
          yield line
          if (line.next_cursor === null) return
          continue
        }
        const { Process, TransactionID, ReplayID } = line
        const key = JSON.stringify([Process, TransactionID, ReplayID])
        if (received.has(key)) continue
        received.add(key)
        yield line
      }
      throw new CommandFailed(exitCodes.unreachable, 'The response ended before its last line.')
    } catch (error) {
      if (!(error instanceof CommandFailed) || error.exitCode !== exitCodes.unreachable) throw error
      if (tries >= MAX_TRIES || (state.cursor === null && received.size === 0)) throw error
      tries += 1
    }
  }
}
