/** Reads from the environment the settings that processes declare. */
import { ConfigError, type Environment, parseConfig } from '@integration-host/shared/process/config'
import { z } from 'zod'
import { bindSettings, type ProcessDefinition } from '../../step/definition.ts'

/**
 * Returns the name of the environment variable of a setting: for example `INVOICE_EXPORT_ERP_URL` for the setting
 * `erpUrl` of the process `InvoiceExport`.
 */
export const variableOf = (process: string, setting: string): string =>
  `${upperSnake(process)}_${upperSnake(setting)}`

const upperSnake = (name: string): string =>
  name
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replaceAll(/([A-Z])([A-Z][a-z])/g, '$1_$2')
    .replaceAll('-', '_')
    .toUpperCase()

/**
 * Builds the function that reads the settings of a process. The function returns the process with the values of its
 * settings, or one line per faulty setting, without the value.
 *
 * @param reserved the variables of the coordinator itself. A process may not declare any of these variables, because
 * the process would read a value that is not meant for it. Two settings may not have the same variable either.
 */
export function createSettingsReader(env: Environment, reserved: readonly string[]) {
  const owners = new Map(
    reserved.flatMap((variable) => namesOf(variable).map((name) => [name, 'the coordinator'])),
  )

  function read(variable: string, owner: string, schema: z.ZodType): Read {
    for (const name of namesOf(variable)) {
      const other = owners.get(name)
      if (other !== undefined) return { faults: [`${variable}: ${name} belongs to ${other}`] }
    }
    for (const name of namesOf(variable)) owners.set(name, owner)
    try {
      return { value: parseConfig(z.object({ [variable]: schema }), env)[variable] }
    } catch (error) {
      if (error instanceof ConfigError) return { faults: error.problems }
      // The error text is not used, because the schema itself has thrown and its message may contain the value.
      return { faults: [`${variable}: its schema cannot check a value`] }
    }
  }

  return (definition: ProcessDefinition): ProcessDefinition | { readonly faults: Faults } => {
    const declared = Object.entries(definition.settings)
    if (declared.length === 0) return definition
    const { name } = definition
    const found = declared.map(
      ([setting, schema]) =>
        [
          setting,
          read(variableOf(name, setting), `the setting ${setting} of ${name}`, schema),
        ] as const,
    )
    const faults = found.flatMap(([, one]) => ('faults' in one ? one.faults : []))
    if (faults.length > 0) return { faults }
    try {
      const values: Record<string, unknown> = {}
      for (const [setting, one] of found) if ('value' in one) values[setting] = one.value
      return bindSettings(definition, values)
    } catch (error) {
      if (error instanceof TypeError) return { faults: [error.message] }
      throw error
    }
  }
}

type Faults = readonly string[]
type Read = { readonly value: unknown } | { readonly faults: Faults }

/**
 * Returns the names of two variables: the variable that contains the value of a setting, and the variable that contains
 * the path of a file with this value.
 */
const namesOf = (variable: string): readonly string[] =>
  variable.endsWith('_FILE') ? [variable] : [variable, `${variable}_FILE`]
