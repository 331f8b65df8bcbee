import { nameOf } from '@integration-host/shared/contracts/text'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { Realm } from '@integration-host/shared/contracts/realm'
import { z } from 'zod'
import {
  type CommonOptions,
  defineCommand,
  flags,
  type Given,
  lists,
  oneName,
  pairOf,
  texts,
  validOption,
  yesOption,
} from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { faultLines, labelledLines } from '../fault-lines.ts'
import { labelOptions, parseLabels } from '../label-options.ts'
import { pagesOf, type QueryParameters, printPages, queryOf } from '../paging.ts'
import { type Columns, confirm, createTable, isInteractive, notify, widthOf } from '../terminal.ts'
import { openTokenService, type ServiceApi } from '../service-api.ts'
import { reasonOf, reasonOption } from './transactions/arguments.ts'

const PAGE = 500
const CredentialPage = z.object({
  items: z.array(CredentialView),
  next_cursor: z.string().nullable(),
})

/** Yields the pages of credentials that match `conditions`, in the order of their names. */
export const credentialPages = (
  service: Pick<ServiceApi, 'get'>,
  conditions: QueryParameters = {},
) =>
  pagesOf(service, {
    path: '/credentials',
    query: queryOf(conditions),
    schema: CredentialPage,
    limit: Number.POSITIVE_INFINITY,
    mostPerPage: PAGE,
  })

const pathOf = (name: string): string => `/credentials/${encodeURIComponent(name)}`

export const list = defineCommand({
  summary: 'list credentials with their state',
  usage: '[--state STATE] [--class CLASS] [--tag NAME=VALUE] [--q TEXT]',
  help: `Lists credentials in the order of their names, without secrets. Without options it lists all, otherwise those
that fulfil all of the conditions. With --json each line is one credential.

  --state STATE      active, expiring, failing or must_reconnect; several are separated by commas
  --class CLASS      the class of the fault, such as invalid_grant; several are separated by commas
  --tag NAME=VALUE   a tag; if repeated, a credential needs all of the tags
  --q TEXT           the name or the realm begins with the text, or the label or the name of the company contains it; case is
                     ignored

Examples:
  integration-host credentials list
  integration-host credentials list --state failing,must_reconnect
  integration-host credentials list --tag plan=gold --q acme
  integration-host credentials list --json | jq -r 'select(.Status == "faulted") | .Name'`,
  options: { ...lists('state', 'class', 'tag'), ...texts('q') },
  async run({ values: { state, class: classes, tag, q, url, json }, terminal }) {
    const tags = tag?.map((value) => pairOf('--tag', value).join(':'))
    const conditions = { state, class: classes, tag: tags, q }
    const pages = credentialPages(openTokenService(url, terminal), conditions)
    await printPages(pages, json, createTable(columns, widthOf(terminal)), terminal)
  },
})

const columns: Columns<CredentialView> = {
  NAME: 'Name',
  COMPANY: (credential) => nameOf(credential),
  STATE: 'State',
  VERSION: 'Version',
  EXPIRY: 'Expiry',
  'HARD EXPIRY': 'HardExpiry',
  FAULT: ({ Fault }) => Fault?.Code,
}

export const show = defineCommand({
  summary: 'show one credential, its fault and the remedy',
  usage: 'ACC-<realm>',
  help: `Shows one credential without its secrets. For a faulted credential it also shows since when and why it is
faulted, the provider's trace id and the remedy; the exit code is 4.

Examples:
  integration-host credentials show ACC-9341453908059889
  integration-host credentials show ACC-9341453908059889 --json | jq .Fault.Remedy`,
  argumentOf: oneName,
  async run({ values, argument: name, terminal, output }) {
    const service = openTokenService(values.url, terminal)
    const credential = await service.get(pathOf(name), CredentialView)
    await printCredential(output, credential)
    return credential.Fault === undefined ? exitCodes.ok : exitCodes.faulted
  },
})

/** Prints a credential as JSON, or as lines for people. */
async function printCredential(
  output: Given<CommonOptions>['output'],
  credential: CredentialView,
): Promise<void> {
  const { Label, CompanyName, Tags = {}, Attempts, Fault } = credential
  await output(
    credential,
    ...labelledLines([
      ['Name', credential.Name],
      ['Label', Label],
      ['Company', CompanyName],
      ...Object.entries(Tags).map(([name, value]) => ['Tag', `${name}=${value}`] as const),
      ['Environment', credential.Environment],
      ['Status', credential.Status],
      ['State', credential.State],
      ['Version', String(credential.Version)],
      ['Refreshed', credential.RefreshedAt],
      ['Refresh due', credential.RefreshDueAt],
      ['Expiry', credential.Expiry],
      ['Idle expiry', credential.IdleExpiry],
      ['Hard expiry', credential.HardExpiry],
      ['Attempts', Attempts === 0 ? null : String(Attempts)],
      // If the fault contains the time of the next attempt, `faultLines` prints this time, so it is not printed here.
      ['Next try', Fault?.NextTryAt === undefined ? credential.NextTryAt : null],
    ]),
    ...(Fault === undefined ? [] : faultLines(Fault)),
  )
}

const Started = z.object({ url: z.url(), state: z.string(), expires_at: z.iso.datetime() })

export const connect = defineCommand({
  summary: 'print the address at which a company is connected',
  usage: '[--realm REALM] [--return-to URL] [--label TEXT] [--tag NAME=VALUE]…',
  help: `Starts an authorization and prints the address to open in a browser.

  --realm REALM     accept only this company, to reconnect it
  --return-to URL   the address that the browser is sent to at the end; its origin must be one of RETURN_TO_ORIGINS
  --label TEXT, --tag NAME=VALUE
                    the label and the tags of the company (credentials label --help)

Examples:
  integration-host credentials connect
  integration-host credentials connect --label 'Acme Ltd' --tag plan=gold
  xdg-open "$(integration-host credentials connect --realm 9341453908059889)"`,
  options: { ...texts('realm', 'return-to'), ...labelOptions },
  async run({ values, terminal, output }) {
    const realm = validOption('--realm', Realm.optional(), values.realm)
    const body = { realm, return_to: values['return-to'], ...parseLabels(values) }
    const service = openTokenService(values.url, terminal)
    const started = await service.post('/authorizations', body, Started)
    if (!values.json)
      notify(terminal, `Open this address in a browser before ${started.expires_at}:`)
    await output(started, started.url)
  },
})

export const refresh = defineCommand({
  summary: 'refresh a credential now',
  usage: 'ACC-<realm> [--reason TEXT]',
  help: `Refreshes a credential now, even if its access token is still valid, and shows it. If the grant has ended, it
shows the reason, the provider's trace id and the remedy; the exit code is 4.

  --reason TEXT   why, for the audit log (at most 500 characters)

Examples:
  integration-host credentials refresh ACC-9341453908059889
  integration-host credentials refresh ACC-9341453908059889 --reason 'the provider is available again'`,
  options: reasonOption,
  argumentOf: oneName,
  async run({ values, argument: name, terminal, output }) {
    const body = { Reason: reasonOf(values.reason) }
    const service = openTokenService(values.url, terminal)
    await printCredential(
      output,
      await service.post(`${pathOf(name)}/refresh`, body, CredentialView),
    )
  },
})

export const remove = defineCommand({
  summary: 'revoke the grant and remove the credential',
  usage: 'ACC-<realm> [--erase] [--reason TEXT] [--yes]',
  help: `Revokes the grant at the provider and removes the credential. To undo this, the company must be connected again.

  --erase         also erase the data of the company's runs that have ended; nothing restores it. The key needs
                  transactions:operate as well
  --reason TEXT   why, for the audit log (at most 500 characters)
  --yes           do not prompt; needed without a terminal

Examples:
  integration-host credentials remove ACC-9341453908059889
  integration-host credentials remove ACC-9341453908059889 --erase --yes`,
  options: { ...yesOption, ...flags('erase'), ...reasonOption },
  argumentOf: oneName,
  async run({ values, argument: name, terminal, output }) {
    const { erase = false } = values
    const reason = reasonOf(values.reason)
    const service = openTokenService(values.url, terminal)
    if (!values.yes) {
      if (!isInteractive(terminal))
        throw new UsageError(
          'Without a terminal for the prompt, --yes is needed; nothing was removed',
        )
      const more = erase ? ', and erase the data of its runs' : ''
      const question = `Revoke the grant of ${name} at the provider and remove it${more}?`
      if (!(await confirm(terminal, question))) {
        notify(terminal, 'Nothing was removed.')
        return exitCodes.failed
      }
    }
    const path = pathOf(name) + (erase ? '?erase=true' : '')
    const body = reason === undefined ? undefined : { Reason: reason }
    const { headers } = await service.send(path, z.unknown(), { method: 'DELETE', body })
    const revocation = headers.get('Revocation')
    const removal = { Name: name, ...(revocation !== null && { Revocation: revocation }) }
    await output(removal, `${name} is removed.`)
    if (values.json) return exitCodes.ok
    if (erase)
      notify(
        terminal,
        'The coordinators erase the data of its runs that have ended. `actions list` shows each of them.',
      )
    if (revocation === 'confirmed')
      notify(terminal, 'The provider confirmed that its grant has ended.')
    if (revocation === 'unconfirmed')
      notify(
        terminal,
        'The provider did not confirm that the grant has ended. Its owner can disconnect the application there.',
      )
    return exitCodes.ok
  },
})

export const labelCredential = defineCommand({
  summary: 'give a company a label and tags',
  usage: 'ACC-<realm> [--label TEXT] [--tag NAME=VALUE]… [--clear]',
  help: `Changes the label and the tags of a credential, and shows the credential. Values that are not given do not change.

  --label TEXT       the name of the company for people, at most 100 characters
  --tag NAME=VALUE   a tag; repeat it for up to ten. The given tags replace all stored ones
  --clear            remove the label and the tags that are not given

Examples:
  integration-host credentials label ACC-9341453908059889 --label 'Acme Ltd' --tag plan=gold --tag team=north
  integration-host credentials label ACC-9341453908059889 --clear`,
  options: { ...labelOptions, ...flags('clear') },
  argumentOf: oneName,
  async run({ values, argument: name, terminal, output }) {
    const { label, tags } = parseLabels(values)
    const removed = values.clear === true ? null : undefined
    const body = { Label: label ?? removed, Tags: tags ?? removed }
    if (body.Label === undefined && body.Tags === undefined)
      throw new UsageError('--label, --tag or --clear is needed')
    const service = openTokenService(values.url, terminal)
    const { data } = await service.send(pathOf(name), CredentialView, { method: 'PATCH', body })
    await printCredential(output, data)
  },
})
