/**
 * Loads processes, runs the function of each first step, and prints the results and failures as JSON. It is a separate
 * program, because the test runner replaces Node's module loader. The argument has the form of the setting `PROCESSES`.
 */
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { loadProcesses } from '../src/adapters/folder/processes.ts'
import { processSources } from '../src/adapters/folder/process-sources.ts'

export interface Loaded {
  /** The return value of the first step of each process. */
  readonly results: Readonly<Record<string, unknown>>
  readonly failures: readonly {
    readonly file: string
    readonly line: number | null
    readonly reason: string
  }[]
  readonly error?: string
}

/** The time limit for loading a file. It suffices for the files of the tests, even on a machine under load. */
const DEADLINE_MS = 3_000

const print = (loaded: Loaded): void => void process.stdout.write(JSON.stringify(loaded))

try {
  const { definitions, failures } = await loadProcesses(processSources().parse(process.argv[2]), {
    deadlineMs: DEADLINE_MS,
  })
  const results: Record<string, unknown> = {}
  for (const { name, steps, stepNames } of definitions.values()) {
    const run = steps.get(stepNames[0]) as ((step: unknown) => unknown) | undefined
    results[name] = await run?.(null)
  }
  print({ results, failures })
} catch (error) {
  if (!(error instanceof StartupError)) throw error
  print({ results: {}, failures: [], error: error.message })
}
