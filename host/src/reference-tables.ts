import { reference as gateway } from '@integration-host/accounting-gateway/config'
import { COMMON_HELP, groups, single } from '@integration-host/cli/command-line'
import type { Command } from '@integration-host/cli/command'
import { reference as consoleSettings } from '@integration-host/console/config'
import { reference as coordinator } from '@integration-host/coordinator/config'
import { reference as demoApi } from '@integration-host/demo-api/config'
import { reference as sandbox } from '@integration-host/sandbox-provider/config'
import { errorCodes, type Remedy } from '@integration-host/shared/errors'
import { reference as tokenService } from '@integration-host/token-service/config'
import { reference as webhookReceiver } from '@integration-host/webhook-receiver/config'
import { z } from 'zod'
import { hostCommands } from './commands/host-commands.ts'

const services: Readonly<Record<string, z.ZodObject>> = {
  'token-service': tokenService,
  'accounting-gateway': gateway,
  coordinator,
  'webhook-receiver': webhookReceiver,
  console: consoleSettings,
  'demo-api': demoApi,
  'sandbox-provider': sandbox,
}

const nextActs: Readonly<Record<Remedy, string>> = {
  retry: 'try the same call again later',
  reauthorize: 'authorize the company',
  none: 'change something first',
}

/** Returns a Markdown table of what a caller can do, with the error codes for which this holds. */
export const errorsTable = (): string =>
  tableOf(
    ['To do', 'Codes'],
    Object.entries(nextActs).map(([remedy, act]) => [
      act,
      Object.entries(errorCodes)
        .filter(([, error]) => error.remedy === remedy)
        .map(([code]) => `[\`${code}\`](#${code})`)
        .join(' '),
    ]),
  )

/**
 * Returns a Markdown table of the settings, from the schemas of the services. A setting without a default that accepts
 * any text has no row. The services are named where a setting differs between them.
 */
export function settingsTable(): string {
  const forms = new Map<string, Map<string, string[]>>()
  for (const [service, schema] of Object.entries(services))
    for (const [name = '', ...cells] of rowsOf(schema)) {
      const ofName = forms.get(name) ?? new Map<string, string[]>()
      const form = cells.join(' | ')
      ofName.set(form, [...(ofName.get(form) ?? []), service])
      forms.set(name, ofName)
    }
  const rows = [...forms].flatMap(([name, ofName]) =>
    [...ofName].map(([form, named]) => [
      ofName.size === 1 ? name : `${name} of ${named.join(', ')}`,
      form,
    ]),
  )
  return tableOf(
    HEAD,
    rows.filter(([, form]) => form !== 'unset | text'),
  )
}

/** Returns a table of the commands of each group, and the help that all commands have in common. */
export const commandTables = (): string =>
  [
    commandTable('A project of your own', '', hostCommands),
    ...[...groups].map(([name, group]) => commandTable(group.title, `${name} `, group.commands)),
    commandTable('Others', '', single),
    `### Options of all commands\n\n\`\`\`text\n${COMMON_HELP}\n\`\`\``,
  ].join('\n\n')

const commandTable = (
  title: string,
  prefix: string,
  commands: ReadonlyMap<string, Command>,
): string => {
  const rows = [...commands].map(([name, { usage, summary }]) => [
    `\`${`${prefix}${name} ${usage}`.trim().replaceAll('|', String.raw`\|`)}\``,
    summary,
  ])
  return `### ${title}\n\n${tableOf(['Command', 'Does'], rows)}`
}

/**
 * Returns the document with `content` between the comments `<!-- <mark>: generated -->` and `<!-- end -->`.
 *
 * @throws {Error} if the document lacks one of these comments.
 */
export function withGenerated(document: string, mark: string, content: string): string {
  const begin = `<!-- ${mark}: generated -->`
  const [before, rest, ...more] = document.split(begin)
  const end = rest?.indexOf('<!-- end -->') ?? -1
  if (rest === undefined || more.length > 0 || end === -1)
    throw new Error(`the document must have ${begin} once, followed by <!-- end -->`)
  return `${before}${begin}\n\n${content}\n\n${rest.slice(end)}`
}

const HEAD = ['Variable', 'Default', 'Accepts']

interface Shown {
  readonly default?: string | number | boolean | readonly string[]
  readonly enum?: readonly string[]
  readonly minimum?: number
  readonly maximum?: number
  readonly minLength?: number
  readonly maxLength?: number
  readonly format?: string
}

function rowsOf(schema: z.ZodObject): string[][] {
  // Every setting is a string in the environment, but some settings are numbers after parsing. Therefore the schema can
  // limit the string or the number.
  const side = (io: 'input' | 'output') =>
    z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as {
      readonly properties: Readonly<Record<string, Shown>>
      readonly required?: readonly string[]
    }
  const written = side('input')
  const read = side('output')
  return Object.entries(written.properties).map(([name, shown]) => [
    `\`${name}\``,
    defaultOf({ ...read.properties[name], ...shown }, written.required?.includes(name) === true),
    acceptedOf({ ...shown, ...numbersOf(read.properties[name]) }),
  ])
}

const numbersOf = ({ minimum, maximum }: Shown = {}): Shown => ({
  ...(minimum !== undefined && { minimum }),
  ...(maximum !== undefined && { maximum }),
})

function defaultOf({ default: value }: Shown, isRequired: boolean): string {
  if (isRequired) return '**required**'
  if (value === undefined) return 'unset'
  if (value === false) return '`off`'
  const text = typeof value === 'object' ? value.join(',') : String(value)
  return text === '' ? 'empty' : `\`${text}\``
}

function acceptedOf(shown: Shown): string {
  if (shown.enum !== undefined) return shown.enum.map((value) => `\`${value}\``).join(' ')
  if (shown.minimum !== undefined) return `${shown.minimum} to ${shown.maximum ?? '…'}`
  if (shown.format === 'uri') return 'a URL'
  if (shown.maxLength !== undefined) return `at most ${shown.maxLength} characters`
  return 'text'
}

const tableOf = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')
