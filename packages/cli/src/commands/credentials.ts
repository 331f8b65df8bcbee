import { nameOf } from '@integration-host/shared/contracts/text'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { Realm } from '@integration-host/shared/contracts/realm'
import { z } from 'zod'
import { type Command, expectNone, oneName, pairOf, parse, validOption } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { faultLines, labelled } from '../fault-lines.ts'
import { labelOptions, parseLabels } from '../label-options.ts'
import { pagesOf, printPages } from '../paging.ts'
import { prompt, isInteractive, print, notify, type Terminal } from '../terminal.ts'
import { openTokenService, type ServiceApi } from '../service-api.ts'
import { reasonOf, reasonOption } from './transactions/arguments.ts'

const PAGE = 500
export const CredentialPage = z.object({
  items: z.array(CredentialView),
  next_cursor: z.string().nullable(),
})

/** Yields the pages of credentials that match `conditions`, in the order of their names. */
export const credentialPages = (
  service: ServiceApi,
  conditions: [name: string, value: string][] = [],
) =>
  pagesOf(service, {
    path: '/credentials',
    query: new URLSearchParams(conditions),
    schema: CredentialPage,
    limit: Number.POSITIVE_INFINITY,
    mostPerPage: PAGE,
  })

export const pathOf = (name: string): string => `/credentials/${encodeURIComponent(name)}`

export const list: Command = {
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
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      state: { type: 'string', multiple: true },
      class: { type: 'string', multiple: true },
      tag: { type: 'string', multiple: true },
      q: { type: 'string' },
    })
    expectNone(positionals)
    const { state = [], class: classes = [], tag = [], q } = values
    const conditions: [string, string][] = [
      ...state.map((value): [string, string] => ['state', value]),
      ...classes.map((value): [string, string] => ['class', value]),
      ...tag.map((value): [string, string] => ['tag', pairOf('--tag', value).join(':')]),
      ...(q === undefined ? [] : [['q', q] satisfies [string, string]]),
    ]
    const pages = credentialPages(openTokenService(values.url, terminal), conditions)
    await printPages(pages, { isJson: values.json, columns: COLUMNS, rowOf }, terminal)
    return exitCodes.ok
  },
}

const COLUMNS = ['NAME', 'COMPANY', 'STATE', 'VERSION', 'EXPIRY', 'HARD EXPIRY', 'FAULT']

const rowOf = (credential: CredentialView): string[] => [
  credential.Name,
  nameOf(credential) ?? '',
  credential.State,
  String(credential.Version),
  credential.Expiry,
  credential.HardExpiry ?? '',
  credential.Fault?.Code ?? '',
]

export const show: Command = {
  summary: 'show one credential, its fault and the remedy',
  usage: 'ACC-<realm>',
  help: `Shows one credential without its secrets. For a faulted credential it also shows since when and why it is
faulted, the provider's trace id and the remedy; the exit code is 4.

Examples:
  integration-host credentials show ACC-9341453908059889
  integration-host credentials show ACC-9341453908059889 --json | jq .Fault.Remedy`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {})
    const name = oneName(positionals)
    const credential = await openTokenService(values.url, terminal).get(
      pathOf(name),
      CredentialView,
    )
    await printCredential(terminal, credential, values.json)
    return credential.Fault === undefined ? exitCodes.ok : exitCodes.faulted
  },
}

/** Prints a credential as JSON, or as lines for people. */
export async function printCredential(
  terminal: Terminal,
  credential: CredentialView,
  isJson: boolean | undefined,
): Promise<void> {
  if (isJson) return print(terminal, JSON.stringify(credential))
  const { Label, CompanyName, Tags = {}, Attempts, Fault } = credential
  const optional = (label: string, text: string | undefined): string[] =>
    text === undefined ? [] : [labelled(label, text)]
  await print(
    terminal,
    labelled('Name', credential.Name),
    ...optional('Label', Label),
    ...optional('Company', CompanyName),
    ...Object.entries(Tags).map(([name, value]) => labelled('Tag', `${name}=${value}`)),
    labelled('Environment', credential.Environment),
    labelled('Status', credential.Status),
    labelled('State', credential.State),
    labelled('Version', String(credential.Version)),
    labelled('Refreshed', credential.RefreshedAt),
    ...optional('Refresh due', credential.RefreshDueAt),
    labelled('Expiry', credential.Expiry),
    ...optional('Idle expiry', credential.IdleExpiry),
    ...optional('Hard expiry', credential.HardExpiry),
    ...(Attempts === 0 ? [] : [labelled('Attempts', String(Attempts))]),
    // If the fault contains the time of the next attempt, `faultLines` prints this time, so it is not printed here.
    ...(Fault?.NextTryAt === undefined ? optional('Next try', credential.NextTryAt) : []),
    ...(Fault === undefined ? [] : faultLines(Fault)),
  )
}

const Started = z.object({ url: z.url(), state: z.string(), expires_at: z.iso.datetime() })

export const connect: Command = {
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
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      realm: { type: 'string' },
      'return-to': { type: 'string' },
      ...labelOptions,
    })
    expectNone(positionals)
    const realm = validOption('--realm', Realm.optional(), values.realm)
    const body = { realm, return_to: values['return-to'], ...parseLabels(values) }
    const started = await openTokenService(values.url, terminal).post(
      '/authorizations',
      body,
      Started,
    )
    if (!values.json)
      notify(terminal, `Open this address in a browser before ${started.expires_at}:`)
    await print(terminal, values.json ? JSON.stringify(started) : started.url)
    return exitCodes.ok
  },
}

export const refresh: Command = {
  summary: 'refresh a credential now',
  usage: 'ACC-<realm> [--reason TEXT]',
  help: `Refreshes a credential now, even if its access token is still valid, and shows it. If the grant has ended, it
shows the reason, the provider's trace id and the remedy; the exit code is 4.

  --reason TEXT   why, for the audit log (at most 500 characters)

Examples:
  integration-host credentials refresh ACC-9341453908059889
  integration-host credentials refresh ACC-9341453908059889 --reason 'the provider is available again'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, reasonOption)
    const path = `${pathOf(oneName(positionals))}/refresh`
    const body = { Reason: reasonOf(values.reason) }
    const service = openTokenService(values.url, terminal)
    await printCredential(terminal, await service.post(path, body, CredentialView), values.json)
    return exitCodes.ok
  },
}

export const remove: Command = {
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
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      yes: { type: 'boolean', short: 'y' },
      erase: { type: 'boolean', default: false },
      ...reasonOption,
    })
    const { erase } = values
    const name = oneName(positionals)
    const reason = reasonOf(values.reason)
    const service = openTokenService(values.url, terminal)
    if (!values.yes) {
      if (!isInteractive(terminal))
        throw new UsageError(
          'Without a terminal for the prompt, --yes is needed; nothing was removed',
        )
      const more = erase ? ', and erase the data of its runs' : ''
      const question = `Revoke the grant of ${name} at the provider and remove it${more}? [y/N] `
      if (!/^y(es)?$/i.test((await prompt(terminal, question)).trim())) {
        notify(terminal, 'Nothing was removed.')
        return exitCodes.failed
      }
    }
    const path = pathOf(name) + (erase ? '?erase=true' : '')
    const body = reason === undefined ? undefined : { Reason: reason }
    const { headers } = await service.send(path, z.unknown(), { method: 'DELETE', body })
    const revocation = headers.get('Revocation')
    if (values.json) {
      const removal = { Name: name, ...(revocation !== null && { Revocation: revocation }) }
      await print(terminal, JSON.stringify(removal))
      return exitCodes.ok
    }
    await print(terminal, `${name} is removed.`)
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
}
