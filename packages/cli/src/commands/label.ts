import { CredentialView } from '@integration-host/shared/contracts/credential'
import { type Command, oneName, parse } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { openTokenService } from '../service-api.ts'
import { labelOptions, parseLabels } from '../label-options.ts'
import { pathOf, printCredential } from './credentials.ts'

export const labelCredential: Command = {
  summary: 'give a company a label and tags',
  usage: 'ACC-<realm> [--label TEXT] [--tag NAME=VALUE]… [--clear]',
  help: `Changes the label and the tags of a credential, and shows the credential. Values that are not given do not change.

  --label TEXT       the name of the company for people, at most 100 characters
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
    const { data } = await service.send(pathOf(name), CredentialView, { method: 'PATCH', body })
    await printCredential(terminal, data, values.json)
    return exitCodes.ok
  },
}
