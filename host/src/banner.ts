import { COMMAND_LINE } from '@integration-host/shared/command-line'
import { type Host, STANDARD_PORTS } from './host.ts'

/** Returns a line with the address of each running service. */
export const addresses = (host: Host): string =>
  (
    [
      ['demo-api', host.demoApi],
      ['token-service', host.tokenService],
      ['accounting-gateway', host.accountingGateway],
      ['coordinator', host.coordinator],
      ['sandbox-provider', host.sandboxProvider],
      ['webhook-receiver', host.webhookReceiver],
      ['console', host.console?.url ?? null],
    ] as const
  )
    .filter(([, url]) => url !== null)
    .map(([name, url]) => `  ${name.padEnd(19)} ${url}\n`)
    .join('')

/**
 * Returns the lines with the console's one-time link; empty if the console does not run or has another kind of sign-in.
 * The link is valid for one sign-in within ten minutes. Any reader of the link could use it first, so the link must not
 * be written into a log.
 *
 * @param isTerminal whether a terminal shows the lines. If not, the lines contain a command that creates a link, and
 * not the link itself.
 */
export function signInLines(host: Host, isTerminal: boolean): string {
  const url = host.console?.url ?? ''
  const link = host.console?.signInLink() ?? null
  if (link === null) return ''
  const [text, line] = isTerminal
    ? ['See what happens in a browser. This link signs you in once, within ten minutes:', link]
    : [
        'See what happens in a browser. This command prints a link that signs you in:',
        `${url.endsWith(`:${STANDARD_PORTS.console}`) ? '' : `CONSOLE_URL=${url} `}${COMMAND_LINE} console sign-in`,
      ]
  return `${text}\n\n  ${line}\n\n`
}

/**
 * Returns the text that `npm start` prints: the address of each service, the console's one-time link, and commands to
 * try. The text contains no key.
 *
 * @param isTerminal whether a terminal shows the text.
 */
export function banner(host: Host, isTerminal: boolean): string {
  // Other users of the machine can read the arguments of an OS process. Therefore the printed commands pass the header
  // with the key to curl through standard input.
  const authorization =
    host.applicationKeyFile === null
      ? `printf 'Authorization: Bearer %s\\n' "$SERVICE_API_KEY"`
      : `sed 's/^/Authorization: Bearer /' '${host.applicationKeyFile}'`
  return `
Integration Host is running. All data is stored in ${host.dataDir}; Ctrl-C stops it.

${addresses(host)}
${signInLines(host, isTerminal)}${firstRun(host, `${authorization} | curl -H @-`)}
Each service documents its API at /docs. Connect a company in a browser at ${host.tokenService}/authorize, then read it by its realm id:

  ${authorization} | curl -H @- -H 'Accept: application/json' '${host.accountingGateway}/v3/company/<realm>/query?query=select%20*%20from%20CompanyInfo'

`
}

/** Returns commands that run the first loaded process. `curl` is the beginning of a command that sends the key. */
function firstRun({ processes, demoApi, coordinator, dataDir }: Host, curl: string): string {
  const [first] = processes
  if (first === undefined)
    return 'No process is loaded: PROCESSES names folders of process files.\n'
  // The URLs of demo-api are shown only for OrderProcess, because demo-api cannot queue transactions of any other
  // process.
  if (processes.includes('OrderProcess'))
    return `Try:

  curl '${demoApi}/queue?number=66'
  curl '${demoApi}/replay?number=66'
  ${curl} ${coordinator}/processes/OrderProcess/transactions/66

The CSV files are in ${dataDir}/OrderCSV.
`
  return `The processes ${processes.join(', ')} are loaded. Queue a transaction with the initial data of ${first}, and read its run:

  ${curl} -H 'Content-Type: application/json' -d '{"TransactionID": "1", "Realm": "<realm>", "InitialData": {}}' ${coordinator}/processes/${first}/transactions
  ${curl} ${coordinator}/processes/${first}/transactions/1
`
}
