import { httpUrl } from '@integration-host/shared/process/config'
import { pairOf } from '../command.ts'
import { UsageError } from '../exit-code.ts'

const services = ['demo-api', 'token-service', 'accounting-gateway', 'coordinator'] as const
export type Addresses = Readonly<Record<(typeof services)[number], string>>

const standardPorts: Readonly<Record<keyof Addresses, number>> = {
  'demo-api': 7216,
  'token-service': 7217,
  'accounting-gateway': 7218,
  coordinator: 7219,
}

/**
 * Parses the value of `--against`: either the address of a host whose services have their standard ports, or
 * `<service>=<address>` for each of the services, separated by commas.
 *
 * @throws {UsageError} an address is invalid or missing, or a service is unknown.
 */
export function parseAgainst(text: string): Addresses {
  if (!text.includes('=')) {
    const url = new URL(addressOf(text))
    if (url.port !== '' || url.pathname !== '/')
      throw new UsageError(
        `--against: one address stands for a host with the standard ports, so it has no port and no path; otherwise give ${services.map((name) => `${name}=URL`).join(',')}`,
      )
    return mapped((name) => `${url.protocol}//${url.host}:${standardPorts[name]}`)
  }
  const given = new Map<string, string>()
  for (const entry of text.split(',')) {
    const [name, address] = pairOf('--against', entry.trim())
    if (!services.some((service) => service === name))
      throw new UsageError(
        `--against: there is no service '${name}'; there are: ${services.join(', ')}`,
      )
    given.set(name, addressOf(address))
  }
  return mapped((name) => {
    const address = given.get(name)
    if (address === undefined) throw new UsageError(`--against: ${name}=URL is missing`)
    return address
  })
}

function addressOf(text: string): string {
  const parsed = httpUrl().safeParse(text.trim())
  if (!parsed.success)
    throw new UsageError(`--against: an address ${parsed.error.issues[0]?.message ?? 'is invalid'}`)
  return parsed.data
}

const mapped = (of: (name: keyof Addresses) => string): Addresses =>
  Object.fromEntries(services.map((name) => [name, of(name)])) as Record<keyof Addresses, string>
