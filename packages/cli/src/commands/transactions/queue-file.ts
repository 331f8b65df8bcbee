import { readFile } from 'node:fs/promises'
import { OWN_TEXT, parseJson, trimmedJson } from '@integration-host/shared/json'
import { z } from 'zod'
import { CommandFailed, exitCodes, UsageError } from '../../exit-code.ts'
import { JSON_LINES, type ServiceApi } from '../../service-api.ts'
import { createProgress, plain, print, notify, type Terminal } from '../../terminal.ts'

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
export async function queueFile(
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
    const { code = 'unknown' } = error as NodeJS.ErrnoException
    throw new CommandFailed(exitCodes.usage, `${file} cannot be read (${code}).`)
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
