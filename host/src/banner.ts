import type { Host } from './host.ts'

/** Returns a line with the address of each running service. */
export const addresses = (host: Host): string =>
  (
    [
      ['demo-api', host.demoApi],
      ['token-service', host.tokenService],
      ['accounting-gateway', host.accountingGateway],
      ['coordinator', host.coordinator],
      ['sandbox-provider', host.sandboxProvider],
    ] as const
  )
    .filter(([, url]) => url !== null)
    .map(([name, url]) => `  ${name.padEnd(19)} ${url}\n`)
    .join('')

/**
 * Returns the text that `npm start` prints: the address of each service, and commands to try. The text contains no
 * secret.
 */
export function banner(host: Host): string {
  // The printed commands pass the header with the key to curl through standard input, because other users of
  // the machine can read the arguments of an OS process.
  const authorization =
    host.applicationKeyFile === null
      ? `printf 'Authorization: Bearer %s\\n' "$SERVICE_API_KEY"`
      : `sed 's/^/Authorization: Bearer /' '${host.applicationKeyFile}'`
  return `
Integration Host is running. All data is stored in ${host.dataDir}; Ctrl-C stops it.

${addresses(host)}
Try:

  curl '${host.demoApi}/queue?number=66'
  curl '${host.demoApi}/replay?number=66'
  ${authorization} | curl -H @- ${host.coordinator}/processes/OrderProcess/transactions/66

The CSV files are in ${host.dataDir}/OrderCSV. Each service documents its API at /docs.

Connect a company in a browser at ${host.tokenService}/authorize, then read it by its realm id:

  ${authorization} | curl -H @- -H 'Accept: application/json' '${host.accountingGateway}/v3/company/<realm>/query?query=select%20*%20from%20CompanyInfo'

`
}
