import {
  type Environment,
  listenSettings,
  parseConfig,
} from '@integration-host/shared/process/config'
import { z } from 'zod'
import type { Endpoint } from './forwarder.ts'

const TARGET = /^(?<host>[A-Za-z0-9][A-Za-z0-9.-]{0,252}):(?<port>[1-9]\d{0,4})$/

const targets = () =>
  z.string().transform((list, context): Endpoint[] => {
    const parsed = list.split(',').map((entry) => TARGET.exec(entry.trim())?.groups)
    const endpoints = parsed.map(({ host = '', port } = {}) => ({ host, port: Number(port) }))
    const ports = new Set(endpoints.map(({ port }) => port))
    if (endpoints.every(({ port }) => port <= 65_535) && ports.size === endpoints.length)
      return endpoints
    context.addIssue({
      code: 'custom',
      message: 'must be a comma list of host:port, each port once',
    })
    return z.NEVER
  })

const { HOST, LOG_LEVEL } = listenSettings(0)
const Settings = z.object({
  HOST,
  LOG_LEVEL,
  /** Names of services and where they listen; each port is listened at here too. */
  TARGETS: targets(),
})
export type Config = z.output<typeof Settings>
/** Every setting of the service, for the reference in docs/settings.md. */
export const reference = Settings

/** Reads the settings. @throws {ConfigError} naming every bad or missing one. */
export const readConfig = (env: Environment = process.env): Config => parseConfig(Settings, env)
