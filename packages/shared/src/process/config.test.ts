import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  backendUrl,
  httpUrl,
  integer,
  listenSettings,
  parseConfig,
  secret,
  serviceKeys,
} from './config.ts'

const folder = mkdtempSync(join(tmpdir(), 'config-'))
afterAll(() => rmSync(folder, { recursive: true }))

const fileWith = (content: string): string => {
  const path = join(folder, crypto.randomUUID())
  writeFileSync(path, content)
  return path
}

const Settings = z.object({
  ...listenSettings(7217),
  SERVICE_API_KEY: serviceKeys(),
  CLIENT_SECRET: secret(),
  DISCOVERY_URL: httpUrl(),
  REDIS_URL: backendUrl(/^rediss?$/, 'redis://localhost:6379'),
  LIMIT: integer(1, 100).default(10),
})

const KEY = 'k'.repeat(32)
const good = {
  SERVICE_API_KEY: KEY,
  CLIENT_SECRET: 'hush',
  DISCOVERY_URL: 'https://provider.example/.well-known/openid_configuration',
  REDIS_URL: 'redis://:password@localhost:6379/3',
}

describe('reading settings', () => {
  it('parseConfig applies the defaults of unset settings, and wraps secrets so that they are not printed', () => {
    const config = parseConfig(Settings, good)
    expect(config).toMatchObject({ HOST: '127.0.0.1', PORT: 7217, LOG_LEVEL: 'info', LIMIT: 10 })
    expect(config.CLIENT_SECRET.reveal()).toBe('hush')
    expect(JSON.stringify(config)).not.toMatch(/hush|password|kkkk/)
  })

  it('parseConfig names every wrong or missing setting in one error message that contains no values', () => {
    const bad = {
      PORT: '7216abc',
      SERVICE_API_KEY: 'short-secret',
      REDIS_URL: 'http://secret',
      LIMIT: '0',
      DISCOVERY_URL: '',
    }
    const read = () => parseConfig(Settings, bad)
    for (const name of [
      'PORT',
      'SERVICE_API_KEY',
      'CLIENT_SECRET',
      'DISCOVERY_URL',
      'REDIS_URL',
      'LIMIT',
    ]) {
      expect(read).toThrow(new RegExp(`^ {2}${name}\\b`, 'm'))
    }
    expect(read).not.toThrow(/7216abc|short-secret|http:\/\/secret/)
    expect(read).toThrow('CLIENT_SECRET: is missing')
  })

  it.each(['-1', '65536', '0x10', '1e3', '80 ', 'NaN'])(
    'parseConfig rejects %j as the setting PORT',
    (PORT) => {
      expect(() => parseConfig(Settings, { ...good, PORT })).toThrow(/PORT/)
    },
  )

  it.each(['https://user:pw@host/', 'https://host/?a=1', 'https://host/#f', 'ftp://host/', 'host'])(
    'parseConfig rejects %s as the value of a setting for an HTTP address',
    (DISCOVERY_URL) => {
      expect(() => parseConfig(Settings, { ...good, DISCOVERY_URL })).toThrow(/DISCOVERY_URL/)
    },
  )

  it('parseConfig reads a secret from a file and removes one trailing newline', () => {
    const { CLIENT_SECRET: _, ...rest } = good
    const config = parseConfig(Settings, {
      ...rest,
      CLIENT_SECRET_FILE: fileWith('from the file \n'),
    })
    expect(config.CLIENT_SECRET.reveal()).toBe('from the file ')
  })

  it('parseConfig rejects a secret that is set both directly and as a file, and a secret whose file is missing or empty', () => {
    const { CLIENT_SECRET: _, ...rest } = good
    expect(() => parseConfig(Settings, { ...good, CLIENT_SECRET_FILE: fileWith('x') })).toThrow(
      'CLIENT_SECRET_FILE: is set beside',
    )
    expect(() =>
      parseConfig(Settings, { ...rest, CLIENT_SECRET_FILE: join(folder, 'nothing') }),
    ).toThrow('CLIENT_SECRET_FILE: the file cannot be read (ENOENT)')
    expect(() => parseConfig(Settings, { ...rest, CLIENT_SECRET_FILE: fileWith('\n') })).toThrow(
      'CLIENT_SECRET_FILE: the file is empty',
    )
  })

  it('SERVICE_API_KEY and SERVICE_API_KEYS are combined in order and without duplicates', () => {
    const { SERVICE_API_KEY } = parseConfig(Settings, {
      ...good,
      SERVICE_API_KEYS: `${'n'.repeat(32)}, ${KEY}`,
    })
    expect(SERVICE_API_KEY.map((key) => key.reveal())).toEqual([KEY, 'n'.repeat(32)])
  })
})
