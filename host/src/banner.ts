import type { Host } from './host.ts'

/** Where everything is, and three lines to try. The service key stays in its file. */
export function banner(host: Host): string {
  const rows: readonly (readonly [string, string | null])[] = [
    ['demo-api', host.demoApi],
    ['token-service', host.tokenService],
    ['accounting-gateway', host.accountingGateway],
    ['coordinator', host.coordinator],
    ['sandbox-provider', host.sandboxProvider],
  ]
  const key = host.serviceKeyFile === null ? '$SERVICE_API_KEY' : `$(cat ${host.serviceKeyFile})`
  const addresses = rows
    .filter(([, url]) => url !== null)
    .map(([name, url]) => `  ${name.padEnd(19)} ${url}`)
  return `
Integration Host is running. Everything it keeps is in ${host.dataDir}; Ctrl-C ends it.

${addresses.join('\n')}

Try:

  curl '${host.demoApi}/queue?number=66'
  curl '${host.demoApi}/replay?number=66'
  curl -H "Authorization: Bearer ${key}" ${host.coordinator}/processes/OrderProcess/transactions/66

The files are in ${host.dataDir}/OrderCSV. Each service has its documentation at /docs.

Connect a company in a browser at ${host.tokenService}/authorize, then read it with its realm:

  curl -H "Authorization: Bearer ${key}" -H 'Accept: application/json' '${host.accountingGateway}/v3/company/<realm>/query?query=select%20*%20from%20CompanyInfo'

`
}
