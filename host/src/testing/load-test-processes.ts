import { resolve } from 'node:path'
import { isDefinition, type ProcessDefinition } from '@integration-host/coordinator/process'
import { loadProcesses } from '@integration-host/coordinator/process-files'
import { createSettingsReader, variableOf } from '@integration-host/coordinator/process-settings'

/**
 * The values of settings by process and name of the setting, such as `{ InvoiceExport: { erpUrl:
 * 'https://erp.test' } }`.
 */
export type ProcessSettingValues = Readonly<
  Record<string, Readonly<Record<string, string | number | boolean>>>
>

/** A process, or the path of a folder with process files. */
export type TestProcess = ProcessDefinition | string

/**
 * Returns the processes with the values of their settings.
 *
 * @throws {Error} names what is wrong with a process file or a setting, without the value of the setting.
 */
export async function loadTestProcesses(
  given: readonly TestProcess[],
  settings: ProcessSettingValues,
): Promise<readonly ProcessDefinition[]> {
  const env = Object.fromEntries(
    Object.entries(settings).flatMap(([process, values]) =>
      Object.entries(values).map(([name, value]) => [variableOf(process, name), String(value)]),
    ),
  )
  const faults: string[] = []
  const folders = given.filter((one) => typeof one === 'string')
  const sources = folders.map((path) => ({ kind: 'folder', path: resolve(path) }) as const)
  const processes = new Map<string, ProcessDefinition>()
  if (sources.length > 0) {
    const loaded = await loadProcesses(sources, { env })
    for (const { file, line, reason } of loaded.failures)
      faults.push(`${file}${line === null ? '' : `:${line}`}: ${reason}`)
    for (const [name, definition] of loaded.definitions) processes.set(name, definition)
  }
  const bind = createSettingsReader(env, [])
  for (const definition of given.filter((one) => typeof one !== 'string')) {
    if (!isDefinition(definition))
      throw new TypeError('processes must be what defineProcess returns, or paths of folders')
    const { name } = definition
    if (processes.has(name)) faults.push(`two processes have the name ${name}`)
    const bound = bind(definition)
    if ('faults' in bound) faults.push(...bound.faults.map((fault) => `${name}: ${fault}`))
    else processes.set(name, bound)
  }
  // If a file could not be loaded, its process is unknown. An unknown name in the settings is therefore a fault only if
  // every file was loaded.
  const isLoaded = faults.length === 0
  for (const [name, values] of Object.entries(settings)) {
    const process = processes.get(name)
    if (process === undefined) {
      if (isLoaded) faults.push(`settings: no process has the name ${name}`)
      continue
    }
    for (const setting of Object.keys(values))
      if (!Object.hasOwn(process.settings, setting))
        faults.push(`settings: the process ${name} declares no setting ${setting}`)
  }
  if (faults.length > 0)
    throw new Error(`the test host cannot run these processes:\n${faults.join('\n')}`)
  return [...processes.values()]
}
