import { setTimeout as delay } from 'node:timers/promises'
import { randomOf } from '@integration-host/shared/random'
import { parseAgainst } from '../chaos/against.ts'
import {
  type Client,
  createClient,
  type Installation,
  type Sandbox,
  type SandboxSettings,
} from '../chaos/client.ts'
import { connectCompanies } from '../chaos/companies.ts'
import { runKillCommand } from '../chaos/kill-command.ts'
import type { Ledger } from '../chaos/load.ts'
import { runRound } from '../chaos/round.ts'
import { isKept, type Round, roundDocument, roundTable } from '../chaos/verdict.ts'
import { type Command, expectNone, parse, wholeNumber } from '../command.ts'
import { CommandFailed, exitCodes, UsageError } from '../exit-code.ts'
import { readConnection } from '../settings.ts'
import { counted, createProgress, notify, plain, print, type Terminal } from '../terminal.ts'

const DEFAULT_MINUTES = 5
const MAX_MINUTES = 1_440
const DEFAULT_COMPANIES = 20
const MAX_COMPANIES = 500
const RATES = { orders: 5, reads: 20, connects: 0.2 }
const ACCESS_TOKEN_SECONDS = 10
const ROUND_MS = 60_000
const CALL_DEADLINE_MS = 15_000
const RECOVERY_MS = 60_000
const CONNECT_MS = 60_000
const CLEAN_UP_MS = 60_000
const PROGRESS_MS = 500

export const chaos: Command = {
  summary: 'load an installation with the sandbox provider, and check that nothing is lost',
  usage: '--against ADDRESSES [--minutes N] [--seed N] [--kill-command COMMAND] [--companies N]',
  help: `Connects companies at the sandbox provider, queues orders and reads tokens, a minute at a time. After each minute it
checks the records: every accepted order was completed once, and every company can still be refreshed. Meanwhile you cause
faults by hand or with a command. chaos itself causes none.

During the run the sandbox rotates refresh tokens at every refresh without a grace period, and access tokens
live ${ACCESS_TOKEN_SECONDS} s. This applies to all companies of the sandbox. At the end the settings are restored, and the companies
that were connected are removed; the orders remain. chaos does not run against another provider.

  --against ADDRESSES     http://HOST for the standard ports of one host, or all of
                          demo-api=URL,token-service=URL,accounting-gateway=URL,coordinator=URL
  --minutes N             how long the load runs (default ${DEFAULT_MINUTES})
  --seed N                repeats the random choices of a run: the moments of faults, the order of reads
  --kill-command COMMAND  a shell command that is run once in each round, at a random moment. It gets CHAOS_ROUND (1, 2, …)
                          and CHAOS_RANDOM (0 to 999999), has to repair what it breaks, and may take half a round
  --companies N           how many companies are connected (default ${DEFAULT_COMPANIES})

With --json each line is one round.

Exit code 0: every promise was kept. 1: something was lost, doubled, stuck or locked out, or a kill command failed.

Examples:
  integration-host chaos --against http://127.0.0.1
  integration-host chaos --against http://127.0.0.1 --minutes 10 --kill-command 'docker compose restart redis'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      against: { type: 'string' },
      minutes: { type: 'string' },
      seed: { type: 'string' },
      'kill-command': { type: 'string' },
      companies: { type: 'string' },
    })
    expectNone(positionals)
    if (values.url !== undefined)
      throw new UsageError('chaos calls several services: use --against (--help)')
    if (values.against === undefined) throw new UsageError('--against ADDRESSES is needed')
    const addresses = parseAgainst(values.against)
    const durationMs = minutesOf(values.minutes ?? String(DEFAULT_MINUTES))
    const seed = wholeNumber('--seed', values.seed ?? String(Date.now() % 1_000_000))
    const count = wholeNumber('--companies', values.companies ?? String(DEFAULT_COMPANIES))
    if (count < 1 || count > MAX_COMPANIES)
      throw new UsageError(`--companies must be 1 to ${MAX_COMPANIES}`)
    const at: Installation = {
      demoApi: addresses['demo-api'],
      tokenService: addresses['token-service'],
      accountingGateway: addresses['accounting-gateway'],
      coordinator: addresses.coordinator,
      serviceKey: readConnection('token-service', addresses['token-service'], terminal.env).key,
    }
    const { signal } = terminal
    const client = createClient({ at, signal, deadlineMs: CALL_DEADLINE_MS })
    const sandbox = await sandboxOf(client, at)

    // The order numbers and realms of this run must differ from those of earlier runs.
    const prefix = `chaos-${Date.now().toString(36)}`
    const realms = Array.from({ length: count }, (_, index) => `${prefix}-${index}`)
    notify(terminal, `Seed ${seed}. Connecting ${counted(count, 'company', 'companies')}.`)
    const before = await sandbox.settings()
    const rounds: Round[] = []
    const run: Run = {
      terminal,
      client,
      sandbox,
      seed,
      prefix,
      durationMs,
      killCommand: values['kill-command'] ?? null,
    }
    try {
      await runRounds(run, realms, rounds)
    } finally {
      await print(
        terminal,
        ...(values.json
          ? rounds.map((round) => JSON.stringify(roundDocument(round)))
          : rounds.length > 0
            ? roundTable(rounds)
            : []),
      )
      // The terminal's signal may be aborted already, so the clean-up calls use another signal.
      const cleaner = createClient({
        at,
        signal: AbortSignal.timeout(CLEAN_UP_MS),
        deadlineMs: CALL_DEADLINE_MS,
      })
      await cleanUp(run, cleaner, before)
    }
    return rounds.every(isKept) ? exitCodes.ok : exitCodes.failed
  },
}

interface Run {
  readonly terminal: Terminal
  readonly client: Client
  readonly sandbox: Sandbox
  readonly seed: number
  readonly prefix: string
  readonly durationMs: number
  readonly killCommand: string | null
}

function minutesOf(text: string): number {
  const minutes = /^\d{1,4}(\.\d{1,3})?$/.test(text) ? Number(text) : Number.NaN
  if (!(minutes > 0 && minutes <= MAX_MINUTES))
    throw new UsageError(`--minutes must be a number above 0, at most ${MAX_MINUTES}`)
  return minutes * 60_000
}

/**
 * Returns a client of the installation's sandbox provider.
 *
 * @throws {CommandFailed} the installation does not respond, or rejects the key.
 * @throws {UsageError} the installation uses another provider.
 */
async function sandboxOf(client: Client, at: Installation): Promise<Sandbox> {
  const sandbox = await client.sandbox()
  if (sandbox === 'unreachable')
    throw new CommandFailed(
      exitCodes.unreachable,
      `token-service at ${at.tokenService} starts no authorization. Is it running, and is the address right?`,
    )
  if (sandbox === 'other provider')
    throw new UsageError(
      'This installation does not use the sandbox provider, so nothing was done: chaos connects companies and ends grants.',
    )
  if ((await client.violations()) === null)
    throw new CommandFailed(
      exitCodes.unreachable,
      `The coordinator at ${at.coordinator} does not respond, or rejects the service key.`,
    )
  return sandbox
}

/** Runs the rounds and appends each result. @throws the abort reason if the AbortSignal of the terminal is aborted. */
async function runRounds(run: Run, realms: readonly string[], rounds: Round[]): Promise<void> {
  const { terminal, client, sandbox, prefix } = run
  const now = (): number => performance.now()
  const roundMs = Math.min(ROUND_MS, run.durationMs)
  const total = Math.round(run.durationMs / roundMs)
  const settings = {
    rotation: 'always',
    graceSeconds: 0,
    accessTokenSeconds: ACCESS_TOKEN_SECONDS,
  } as const
  if (!(await sandbox.change(settings)))
    throw new CommandFailed(exitCodes.failed, 'The sandbox provider rejects its new settings.')
  let companies: readonly string[] = []
  for (let number = 1; number <= total; number++) {
    const random = randomOf(run.seed + number)
    const deadline = now() + CONNECT_MS
    const missing = realms.slice(companies.length).map((realm) => `${realm}-${number}`)
    const added = await connectCompanies(
      client,
      missing,
      () => terminal.signal.aborted || now() > deadline,
    )
    terminal.signal.throwIfAborted()
    if (added.length < missing.length)
      throw new CommandFailed(
        exitCodes.failed,
        `${counted(missing.length - added.length, 'company', 'companies')} could not be connected.`,
      )
    companies = [...companies, ...added]
    const round = await runRound(
      { client, sandbox, random, now, signal: terminal.signal },
      {
        name: String(number),
        companies,
        rates: RATES,
        prefix: `${prefix}-${number}`,
        warmUpMs: (0.1 + 0.3 * random()) * roundMs,
        recoveryMs: RECOVERY_MS,
        disturb: ({ ledger }) => disturb(run, { ledger, number, total, roundMs, random }),
      },
    )
    rounds.push(round)
    companies = companies.filter((realm) => !round.lockedOut.includes(realm))
  }
}

interface Disturbance {
  readonly ledger: Ledger
  readonly number: number
  readonly total: number
  readonly roundMs: number
  readonly random: () => number
}

/**
 * Runs the kill command, if there is one, and then waits. The command and the wait together take 60 % of the round, while
 * the load continues.
 */
async function disturb(
  { terminal, killCommand }: Run,
  { ledger, number, total, roundMs, random }: Disturbance,
): Promise<void> {
  const { signal } = terminal
  const endsAt = performance.now() + 0.6 * roundMs
  const progress = createProgress(terminal)
  const ticker = setInterval(() => {
    const { accepted, calls, failedCalls } = ledger
    progress.update(
      `Round ${number} of ${total}: ${counted(accepted.length, 'order')}, ${counted(calls, 'call')}, ${failedCalls} failed`,
    )
  }, PROGRESS_MS)
  try {
    if (killCommand !== null) {
      await runKillCommand(killCommand, {
        env: {
          ...terminal.env,
          CHAOS_ROUND: String(number),
          CHAOS_RANDOM: String(Math.floor(random() * 1_000_000)),
        },
        signal: AbortSignal.any([signal, AbortSignal.timeout(0.5 * roundMs)]),
        onOutput(text) {
          progress.end()
          notify(terminal, ...text.trimEnd().split('\n').map(plain))
        },
      })
    }
    await delay(Math.max(0, endsAt - performance.now()), undefined, { signal })
  } finally {
    clearInterval(ticker)
    progress.end()
  }
}

/** Restores the sandbox's settings and removes the companies of this run. Failures are reported, not thrown. */
async function cleanUp(
  { terminal, prefix }: Run,
  client: Client,
  before: SandboxSettings | null,
): Promise<void> {
  const sandbox = await client.sandbox()
  const isRestored =
    typeof sandbox !== 'string' && before !== null && (await sandbox.change(before))
  if (!isRestored)
    notify(terminal, "The sandbox's settings could not be restored: PUT /sandbox/settings.")
  // token-service may still connect a company after this command has aborted the request. Therefore the companies
  // of this run are listed and removed until none is left.
  for (;;) {
    const realms = await client.realms(prefix)
    if (realms?.length === 0) return
    const removed = realms && (await Promise.all(realms.map((realm) => client.remove(realm))))
    if (removed?.every(Boolean) !== true)
      return notify(
        terminal,
        `Companies of this run could not be removed: ACC-${prefix}… of integration-host credentials list`,
      )
  }
}
