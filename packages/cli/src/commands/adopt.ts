import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import {
  type GrantOutcome,
  grantOutcomes,
  GrantReport,
  type GrantResult,
} from '@integration-host/shared/contracts/custody'
import { reasonOf } from '@integration-host/shared/observability/health'
import { z } from 'zod'
import { defineCommand, texts, yesOption } from '../command.ts'
import { CommandFailed, exitCodes, UsageError } from '../exit-code.ts'
import { type FileLine, type GrantsFile, readGrants } from '../grants-file.ts'
import {
  JSON_LINES,
  LONG_DEADLINE_MS,
  openTokenService,
  RequestRejected,
  type ServiceApi,
} from '../service-api.ts'
import {
  confirm,
  counted,
  createProgress,
  isInteractive,
  notify,
  pause,
  plain,
  print,
  type Terminal,
} from '../terminal.ts'

/**
 * The maximum number of grants in one request. A request with this many grants takes a few seconds, because
 * token-service sends at most 20 refresh tokens a second to the provider.
 */
const CHUNK = 50
/** The maximum number of times that a grant is sent while its outcome is `unavailable`. */
const MAX_ROUNDS = 5
const MAX_WAIT_SECONDS = 60
/** How long the service may be unreachable, for example during a restart, before the command fails. */
const UNREACHABLE_MS = 120_000
const RECONNECT_MS = 1_000

const NOTICE = `The other program must be stopped, on every machine. Each token in the file is sent to the provider once. From then
on only this installation can refresh these grants: the other program must not use its tokens again.`

export const adopt = defineCommand({
  summary: 'take over grants that another program holds',
  usage: '[--file FILE] [--yes]',
  help: `Takes over grants that another program holds. The other program must be stopped first, on every machine: two
programs that refresh the same grant invalidate each other's tokens.

The file has one JSON object on each line: {"Realm": "…", "RefreshToken": "…"}, also with Label, Tags and Environment.
Each token is refreshed once; the new token is stored, and the one in the file cannot be used afterwards. Prints the
outcome of each line, never a token: stored, already_here (adopted before, or connected here; nothing was sent),
refused, unavailable, invalid. Exit code 1 if a line was refused, unavailable or invalid.
If the command or the service was interrupted, run it again with the same file: lines that were stored are recognised.

  --file FILE   the grants; - or no --file: standard input
  --yes         do not prompt; needed without a terminal

Examples:
  integration-host credentials adopt --file grants.ndjson
  decrypt grants.ndjson.gpg | integration-host credentials adopt --yes`,
  options: { ...texts('file'), ...yesOption },
  async run({ values, terminal }) {
    const service = openTokenService(values.url, terminal)
    const file = await readFrom(values.file ?? '-', terminal)
    const lines = counted(file.grants.length + file.rejected.length, 'line')
    if (file.grants.length + file.rejected.length === 0)
      throw new CommandFailed(exitCodes.failed, 'There are no grants to adopt.')
    notify(terminal, NOTICE)
    if (file.grants.length > 0) {
      // A service that cannot be reached is reported before the prompt.
      await service.get('/health/live', z.object({ status: z.string() }))
      if (!(await isConfirmed(file.grants.length, values.yes, terminal))) {
        notify(terminal, 'No token was sent.')
        return exitCodes.failed
      }
    }
    const counts = new Map<GrantOutcome, number>()
    const progress = createProgress(terminal)
    const report = async (result: GrantResult): Promise<void> => {
      counts.set(result.Outcome, (counts.get(result.Outcome) ?? 0) + 1)
      progress.end()
      await print(terminal, values.json ? JSON.stringify(result) : textOf(result))
    }
    for (const { number, name, reason } of file.rejected)
      await report({ Line: number, Name: name, Outcome: 'invalid', Reason: reason })
    try {
      await adoptAll(file.grants, { service, terminal, report, progress })
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error
      throw new CommandFailed(
        error.exitCode,
        `${error.message}\nStopped after ${summaryOf(counts)} of ${lines}. Run it again with the same file: lines that were stored are recognised.`,
      )
    } finally {
      progress.end()
    }
    if (!values.json) await print(terminal, summaryOf(counts))
    const isComplete = FAILED.every((outcome) => !counts.has(outcome))
    return isComplete ? exitCodes.ok : exitCodes.failed
  },
})

const FAILED: readonly GrantOutcome[] = ['refused', 'unavailable', 'invalid']

async function readFrom(path: string, terminal: Terminal): Promise<GrantsFile> {
  if (path === '-') {
    if (terminal.stdin.isTTY === true)
      throw new UsageError('--file FILE is needed, or grants on standard input')
    return readGrants(terminal.stdin)
  }
  const input = createReadStream(path)
  try {
    await once(input, 'open')
    return await readGrants(input)
  } catch (error) {
    throw new CommandFailed(exitCodes.failed, `${path} cannot be read (${reasonOf(error)}).`)
  } finally {
    input.destroy()
  }
}

async function isConfirmed(
  count: number,
  isYes: boolean | undefined,
  terminal: Terminal,
): Promise<boolean> {
  if (isYes) return true
  if (!isInteractive(terminal))
    throw new UsageError('Without a terminal for the prompt, --yes is needed; no token was sent')
  return confirm(terminal, `Is the other program stopped? Adopt ${counted(count, 'grant')}?`)
}

interface Sending {
  readonly service: ServiceApi
  readonly terminal: Terminal
  readonly report: (result: GrantResult) => Promise<void>
  readonly progress: ReturnType<typeof createProgress>
}

/**
 * Sends all grants. A grant with the outcome `unavailable` is sent again a few times. Reports the last outcome of each
 * grant.
 */
async function adoptAll(grants: readonly FileLine[], sending: Sending): Promise<void> {
  const { terminal, report, progress } = sending
  let settled = 0
  let waiting = grants
  for (let round = 1; waiting.length > 0; round += 1) {
    const unavailable: FileLine[] = []
    let retryAfter = 1
    for (let start = 0; start < waiting.length; start += CHUNK) {
      const chunk = waiting.slice(start, start + CHUNK)
      const { results, retry_after } = await send(chunk, sending)
      retryAfter = Math.max(retryAfter, retry_after)
      for (const result of results) {
        const line = chunk[result.Line - 1]
        if (line === undefined) continue
        if (result.Outcome === 'unavailable' && round < MAX_ROUNDS) unavailable.push(line)
        else {
          settled += 1
          await report({ ...result, Line: line.number })
        }
      }
      progress.update(`${settled} of ${grants.length}`)
    }
    waiting = unavailable
    if (waiting.length === 0) return
    const seconds = Math.min(retryAfter, MAX_WAIT_SECONDS)
    progress.end()
    notify(
      terminal,
      `${counted(waiting.length, 'line')} unavailable; trying again in ${seconds} s.`,
    )
    await pause(seconds * 1_000, terminal)
  }
}

/**
 * Sends one chunk of lines, and repeats the request while the service restarts. The service recognises lines that it
 * has already stored, so a repeated request does no harm.
 */
async function send(
  chunk: readonly FileLine[],
  { service, terminal, progress }: Sending,
): Promise<GrantReport> {
  const lines = chunk.map(({ grant }) => JSON.stringify(grant)).join('\n')
  let failedAt: number | null = null
  for (;;) {
    try {
      const { data } = await service.send('/imports/grants', GrantReport, {
        method: 'POST',
        text: { type: JSON_LINES, content: lines },
        timeoutMs: LONG_DEADLINE_MS,
      })
      return data
    } catch (error) {
      if (!isTemporary(error)) throw error
      if (failedAt === null) {
        failedAt = terminal.now()
        progress.end()
        notify(
          terminal,
          `${(error as Error).message}\nTrying again for ${UNREACHABLE_MS / 60_000} minutes.`,
        )
      } else if (terminal.now() - failedAt > UNREACHABLE_MS) throw error
      await pause(RECONNECT_MS, terminal)
    }
  }
}

/**
 * Returns whether a restart of the service may have caused the failure. A rejected service key, for example, has
 * another cause.
 */
const isTemporary = (error: unknown): boolean =>
  error instanceof RequestRejected
    ? ['store_unavailable', 'shutting_down', 'busy'].includes(error.code)
    : error instanceof CommandFailed && error.exitCode === exitCodes.unreachable

function textOf({ Line, Name, Outcome, Version, Code, Reason, TraceId }: GrantResult): string {
  const details = [
    Version === undefined ? undefined : `version ${Version}`,
    Code,
    Reason,
    TraceId === undefined ? undefined : `trace id ${TraceId}`,
  ].filter((detail) => detail !== undefined)
  return plain(
    `Line ${Line}${Name === null ? '' : `, ${Name}`}: ${Outcome}${details.length === 0 ? '' : ` (${details.join('; ')})`}`,
  )
}

const summaryOf = (counts: ReadonlyMap<GrantOutcome, number>): string =>
  grantOutcomes
    .map((outcome) => `${counts.get(outcome) ?? 0} ${outcome.replace('_', ' ')}`)
    .join(', ')
