import { Label, Tags } from '@integration-host/shared/contracts/text'
import { lists, pairOf, texts, validOption } from './command.ts'

/** The options `--label` and `--tag` of a command. */
export const labelOptions = { ...texts('label'), ...lists('tag') }

/**
 * Parses the values of `--label` and `--tag NAME=VALUE`. A member of the result is absent if the option was not given.
 *
 * @throws {UsageError} a value is not valid.
 */
export function parseLabels(values: { label?: string | undefined; tag?: string[] | undefined }): {
  readonly label?: string
  readonly tags?: Tags
} {
  const { label, tag } = values
  return {
    ...(label !== undefined && { label: validOption('--label', Label, label) }),
    ...(tag !== undefined && {
      tags: validOption(
        '--tag',
        Tags,
        Object.fromEntries(tag.map((text) => pairOf('--tag', text))),
      ),
    }),
  }
}
