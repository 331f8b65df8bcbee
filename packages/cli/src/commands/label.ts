import { CredentialView } from '@integration-host/shared/contracts/credential'
import { Label, Tags } from '@integration-host/shared/contracts/labels'
import type { z } from 'zod'
import { type Command, oneName, parse } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { openTokenService } from '../service-api.ts'
import { pathOf, printCredential } from './credentials.ts'

/** The options `--label` and `--tag` of a command. */
export const labelOptions = {
  label: { type: 'string' },
  tag: { type: 'string', multiple: true },
} as const

/**
 * Parses the values of `--label` and `--tag NAME=VALUE`. A member is absent if its option was not given.
 *
 * @throws {UsageError} a value is not valid.
 */
export function parseLabels(values: { label?: string | undefined; tag?: string[] | undefined }): {
  readonly label?: string
  readonly tags?: Tags
} {
  const { label, tag } = values
  return {
    ...(label !== undefined && { label: valid('--label', Label, label) }),
    ...(tag !== undefined && { tags: valid('--tag', Tags, Object.fromEntries(tag.map(pairOf))) }),
  }
}

/** Splits `NAME=VALUE`. @throws {UsageError} there is no name or no `=`. */
export function pairOf(text: string): [name: string, value: string] {
  const equals = text.indexOf('=')
  if (equals < 1) throw new UsageError('--tag must be NAME=VALUE')
  return [text.slice(0, equals), text.slice(equals + 1)]
}

function valid<Schema extends z.ZodType>(
  option: string,
  schema: Schema,
  value: unknown,
): z.output<Schema> {
  const parsed = schema.safeParse(value)
  if (!parsed.success) throw new UsageError(`${option} ${parsed.error.issues[0]?.message ?? ''}`)
  return parsed.data
}

export const labelCredential: Command = {
  summary: 'give a company a label and tags',
  usage: 'ACC-<realm> [--label TEXT] [--tag NAME=VALUE]… [--clear]',
  help: `Changes the label and the tags of a credential, and shows it. What is not given stays as it is.

  --label TEXT       what people call the company, at most 100 characters
  --tag NAME=VALUE   a tag; repeat it for up to ten. The given tags replace all stored ones
  --clear            remove the label and the tags that are not given

Examples:
  integration-host credentials label ACC-9341453908059889 --label 'Acme Ltd' --tag plan=gold --tag team=north
  integration-host credentials label ACC-9341453908059889 --clear`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, { ...labelOptions, clear: { type: 'boolean' } })
    const name = oneName(positionals)
    const { label, tags } = parseLabels(values)
    const removed = values.clear === true ? null : undefined
    const body = { Label: label ?? removed, Tags: tags ?? removed }
    if (body.Label === undefined && body.Tags === undefined)
      throw new UsageError('--label, --tag or --clear is needed')
    const service = openTokenService(values.url, terminal)
    const credential = await service.patch(pathOf(name), body, CredentialView)
    await printCredential(terminal, credential, values.json)
    return exitCodes.ok
  },
}
