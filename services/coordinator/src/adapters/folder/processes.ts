import { readdir } from 'node:fs/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { join } from 'node:path'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import type { ProcessDefinition } from '../../process/definition.ts'

const PROCESSES = fileURLToPath(new URL('../../processes/', import.meta.url))

/**
 * Loads the business processes of a folder: the default export of each `*.ts` file except test files.
 *
 * @throws {StartupError} if a file cannot be loaded, defines no process, or repeats the name of another process.
 * The error names the file.
 */
export async function loadProcesses(
  folder: string = PROCESSES,
): Promise<ReadonlyMap<string, ProcessDefinition>> {
  const files = (await readdir(folder))
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))
    .toSorted()
  const processes = new Map<string, ProcessDefinition>()
  for (const file of files) {
    const definition = await load(join(folder, file))
    if (processes.has(definition.name))
      throw new StartupError(
        `${file} defines the process ${definition.name}, and so does another file`,
      )
    processes.set(definition.name, definition)
  }
  return processes
}

async function load(path: string): Promise<ProcessDefinition> {
  let loaded: { readonly default?: unknown }
  try {
    loaded = (await import(pathToFileURL(path).href)) as { default?: unknown }
  } catch (error) {
    const why = error instanceof Error ? `${error.name}: ${error.message}` : 'unknown error'
    throw new StartupError(`the process file ${path} does not load: ${why}`, { cause: error })
  }
  if (!isDefinition(loaded.default))
    throw new StartupError(
      `the process file ${path} must export what defineProcess returns as its default`,
    )
  return loaded.default
}

const isDefinition = (value: unknown): value is ProcessDefinition =>
  typeof value === 'object' && value !== null && 'stepNames' in value && 'steps' in value
