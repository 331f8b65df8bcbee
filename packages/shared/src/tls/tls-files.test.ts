import { copyFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  type Authority,
  type Certificate,
  createAuthority,
  rotatingFiles,
} from '../../test-support/certificates.ts'
import { parseConfig } from '../process/config.ts'
import { tlsFiles, tlsSettings } from './tls-files.ts'

const Settings = z.object({ REDIS_URL: z.string().optional(), ...tlsSettings('REDIS') })
const parse = (env: Record<string, string>) =>
  parseConfig(Settings, { REDIS_URL: 'rediss://:hush@host', ...env })

let authority: Authority
let client: Certificate
let other: Certificate
beforeAll(async () => {
  authority = await createAuthority()
  client = await authority.issue('client')
  other = await authority.issue('other')
})
afterAll(() => authority[Symbol.asyncDispose]())

async function fileWith(content: string): Promise<string> {
  const path = join(authority.folder, crypto.randomUUID())
  await writeFile(path, content)
  return path
}

describe('the settings of TLS files', () => {
  it('parseConfig keeps the path in REDIS_CA_FILE as the value instead of the content of the file', () => {
    const config = parse({ REDIS_CA_FILE: authority.caFile })
    expect(config.REDIS_CA_FILE).toBe(authority.caFile)
    expect(tlsFiles('REDIS', config)?.read().ca).toContain('BEGIN CERTIFICATE')
  })

  it('the variable REDIS_CA_FILE_FILE is ignored, because REDIS_CA_FILE is already the path of a file', async () => {
    const config = parse({ REDIS_CA_FILE_FILE: await fileWith(authority.caFile) })
    expect(config.REDIS_CA_FILE).toBeUndefined()
    expect(tlsFiles('REDIS', config)).toBeUndefined()
  })

  it.each([
    ['a missing file', async () => '/nowhere', 'the file cannot be read (ENOENT)'],
    ['an empty file', () => fileWith('\n'), 'the file is empty'],
    ['a file without PEM', () => fileWith('text'), 'the file contains no PEM certificate'],
    ['a private key', async () => client.keyFile, 'the file contains no PEM certificate'],
    [
      'a damaged certificate',
      () => fileWith('-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'),
      'the file contains a certificate that cannot be parsed',
    ],
  ])('the service rejects %s as REDIS_CA_FILE', async (_, path, problem) => {
    const REDIS_CA_FILE = await path()
    expect(() => parse({ REDIS_CA_FILE })).toThrow(`  REDIS_CA_FILE: ${problem}`)
  })

  it('the service rejects a certificate as REDIS_KEY_FILE', () => {
    const env = { REDIS_CERT_FILE: client.certFile, REDIS_KEY_FILE: client.certFile }
    expect(() => parse(env)).toThrow('REDIS_KEY_FILE: the file contains no PEM private key')
  })

  it('the service rejects a private key that does not belong to the client certificate', () => {
    const env = { REDIS_CERT_FILE: client.certFile, REDIS_KEY_FILE: other.keyFile }
    expect(() => parse(env)).toThrow(
      'REDIS_KEY_FILE: the key does not belong to the certificate in REDIS_CERT_FILE',
    )
  })

  it('the service rejects a client certificate without a private key, and a private key without a certificate', () => {
    expect(() => parse({ REDIS_CERT_FILE: client.certFile })).toThrow(
      'REDIS_CERT_FILE: needs REDIS_KEY_FILE as well',
    )
    expect(() => parse({ REDIS_KEY_FILE: client.keyFile })).toThrow(
      'REDIS_KEY_FILE: needs REDIS_CERT_FILE as well',
    )
  })

  it.each(['redis://:hush@host', 'redis+sentinel://:hush@host/name', ''])(
    'the service rejects TLS files for the Redis address %j, which does not use TLS',
    (REDIS_URL) => {
      const read = () => parse({ REDIS_URL, REDIS_CA_FILE: authority.caFile })
      expect(read).toThrow('REDIS_CA_FILE: needs a REDIS_URL with TLS, which starts with rediss')
      expect(read).not.toThrow(/hush/)
    },
  )
})

describe('reading TLS files', () => {
  it('reading the TLS files after a rotation returns the new content of the files', async () => {
    const {
      files: { certFile, keyFile },
      rotate,
    } = rotatingFiles(authority.folder)
    await rotate(client)
    const files = tlsFiles('REDIS', { REDIS_CERT_FILE: certFile, REDIS_KEY_FILE: keyFile })
    const before = files?.read()
    await rotate(other)
    const after = files?.read()
    expect(after).not.toEqual(before)
    expect(after?.cert).not.toBe(before?.cert)
  })

  it('while a TLS file is missing or certificate and key do not match, reading the TLS files returns the last usable content', async () => {
    const certFile = await fileWith('')
    await copyFile(client.certFile, certFile)
    const paths = { REDIS_CERT_FILE: certFile, REDIS_KEY_FILE: client.keyFile }
    const files = tlsFiles('REDIS', paths)
    const before = files?.read()
    await copyFile(other.certFile, certFile)
    expect(files?.read()).toEqual(before)
    await rm(certFile)
    expect(files?.read()).toEqual(before)
  })
})
