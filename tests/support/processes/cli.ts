import { fileURLToPath } from 'node:url'
import {
  type ProcessOptions,
  type ProcessResult,
  runProcess,
} from '@integration-host/shared/test-support/start-process'

/** Runs the command-line program as a separate process, as an operator does. */
export const CLI = fileURLToPath(new URL('../../../packages/cli/src/main.ts', import.meta.url))

export const runCli = (args: readonly string[], options: ProcessOptions): Promise<ProcessResult> =>
  runProcess([CLI, ...args], options)

/** Parses the output of `--json`: one JSON document per line. */
export const parseJsonLines = <Line = Readonly<Record<string, unknown>>>(text: string): Line[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line)
