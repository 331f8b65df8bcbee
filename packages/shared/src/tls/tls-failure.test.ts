import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { connect, createServer as createTlsServer, type TlsOptions } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Authority,
  type Certificate,
  createAuthority,
  LOOPBACK_NAMES,
} from '../../test-support/certificates.ts'
import { tlsFailure } from './tls-failure.ts'

let authority: Authority
let stranger: Authority
beforeAll(async () => {
  authority = await createAuthority()
  stranger = await createAuthority()
})
afterAll(async () => {
  await authority[Symbol.asyncDispose]()
  await stranger[Symbol.asyncDispose]()
})

const contentOf = ({ certFile, keyFile }: Certificate) => ({
  cert: readFileSync(certFile),
  key: readFileSync(keyFile),
})

/** Connects to a server, and returns why TLS failed. */
async function failureAt(server: Server, options: object = {}): Promise<string | undefined> {
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const ca = readFileSync(authority.caFile)
  const socket = connect({ host: '127.0.0.1', port, ca, ...options })
  try {
    const [error] = (await once(socket, 'error')) as [Error]
    return tlsFailure(error)?.reason
  } finally {
    socket.destroy()
    server.close()
  }
}

/** A TLS server with a certificate of `issuer`. */
async function tlsServer(
  options: TlsOptions = {},
  issuer = authority,
  names = LOOPBACK_NAMES,
  validity: 'valid' | 'expired' = 'valid',
): Promise<Server> {
  const certificate = await issuer.issue(crypto.randomUUID(), names, validity)
  return createTlsServer({ ...contentOf(certificate), ...options })
}

describe('the reason of a failed TLS connection', () => {
  it('the reason of a failed TLS connection names an unknown certificate authority', async () => {
    const server = await tlsServer({}, stranger)
    expect(await failureAt(server)).toBe("the server's certificate is from an unknown authority")
  })

  it('the reason of a failed TLS connection names a certificate for another host name', async () => {
    const server = await tlsServer({}, authority, 'DNS:elsewhere')
    expect(await failureAt(server)).toBe("the host name does not match the server's certificate")
  })

  it('the reason of a failed TLS connection names an expired server certificate', async () => {
    const server = await tlsServer({}, authority, LOOPBACK_NAMES, 'expired')
    expect(await failureAt(server)).toBe("the server's certificate has expired")
  })

  it('the reason of a failed TLS connection names a missing client certificate', async () => {
    const ca = readFileSync(authority.caFile)
    const server = await tlsServer({ requestCert: true, ca })
    expect(await failureAt(server)).toBe('the server requires a client certificate')
  })

  it('the reason of a failed TLS 1.2 connection names the missing client certificate as a possible cause', async () => {
    const ca = readFileSync(authority.caFile)
    const server = await tlsServer({ requestCert: true, ca, maxVersion: 'TLSv1.2' })
    expect(await failureAt(server)).toBe(
      'the server rejects the TLS handshake: it may require a client certificate',
    )
  })

  it('the reason of a failed connection says that the server does not speak TLS', async () => {
    const server = createServer((socket) => void socket.on('error', () => {}).end('-ERR what?\r\n'))
    expect(await failureAt(server)).toBe('the server does not speak TLS on this port')
  })

  it('the reason of a failed TLS connection says that the server has ended the handshake', async () => {
    const server = createServer((socket) => void socket.on('error', () => {}).end())
    expect(await failureAt(server)).toBe('the server ended the TLS handshake')
  })

  it('tlsFailure returns null for an error that does not come from TLS', () => {
    expect(tlsFailure(Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }))).toBeNull()
    expect(tlsFailure('text')).toBeNull()
  })
})
