/**
 * Loads the processes of the setting that is its argument, runs each first step's function, and prints what was loaded as
 * JSON. A program of its own, because the test runner replaces Node's module loader.
 */
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { loadProcesses } from '../src/adapters/folder/processes.ts'
import { processSources } from '../src/adapters/folder/process-sources.ts'

export interface Loaded {
  /** For each process, what its first step returned. */
  readonly results: Readonly<Record<string, unknown>>
  readonly failures: readonly {
    readonly file: string
    readonly line: number | null
    readonly reason: string
  }[]
  readonly error?: string
}

/** Long enough for the files of the tests on a loaded machine. */
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
