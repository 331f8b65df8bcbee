/** Opens the TCP connection to one address of a PostgreSQL server, and encrypts it as `sslmode` requires. */
import { lookup } from 'node:dns/promises'
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions } from 'node:tls'
import type { TlsContent } from '@integration-host/shared/tls/tls-files'
import type { Server } from '@integration-host/shared/process/server-list'
import type { SslMode } from './address.ts'

/** One of the IP addresses of a server. */
export interface ServerAddress {
  readonly server: Server
  readonly ip: string
}

export interface Encryption {
  readonly mode: SslMode
  /** Reads the TLS files. Called for each connection, so that rotated files are used. */
  readonly read: () => TlsContent
  /**
   * Whether root certificates are configured: a file, or `sslrootcert=system`. With `sslmode=require`, the certificate
   * chain is verified only if root certificates are configured.
   */
  readonly hasRoots: boolean
}

/** Returns the addresses of a server in the order in which they are tried. */
export async function addressesOf(server: Server): Promise<ServerAddress[]> {
  const found = await lookup(server.host, { all: true })
  return found.map(({ address }) => ({ server, ip: address }))
}

/** The error if the server offers no TLS although `sslmode` requires TLS. */
export class TlsNotOffered extends Error {
  override readonly name = 'TlsNotOffered'
  readonly code = 'TLS_NOT_OFFERED'
}

/**
 * Whether TLS is used. With `offered`, TLS is used if the server offers TLS. The modes `prefer` and `allow` have two
 * choices, and the second choice is tried if the first choice fails.
 */
export type Choice = 'plain' | 'offered' | 'tls'
export const choices: Readonly<Record<SslMode, readonly [Choice, Choice?]>> = {
  disable: ['plain'],
  allow: ['plain', 'tls'],
  prefer: ['offered', 'plain'],
  require: ['tls'],
  'verify-ca': ['tls'],
  'verify-full': ['tls'],
}

/** The interval of TCP keep-alive, which detects a dead server even if no statement runs. */
const KEEP_ALIVE_MS = 10_000
/** The message SSLRequest (PostgreSQL manual, section 53.7). */
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])

/**
 * Opens a connection, on which the startup message can be sent.
 *
 * @throws the socket error or TLS error if the connection fails; {@link TlsNotOffered} if the server offers no TLS; the
 * reason of `signal` if it aborts.
 */
export async function openTransport(
  { server, ip }: ServerAddress,
  choice: Choice,
  encryption: Encryption,
  signal: AbortSignal,
): Promise<Socket> {
  signal.throwIfAborted()
  const tcp = connectTcp({ host: ip, port: server.port })
  // The socket error is reported by `next`. This listener only prevents the error from ending the OS process.
  tcp.on('error', () => {})
  const abort = (): void => void tcp.destroy(signal.reason as Error)
  signal.addEventListener('abort', abort, { once: true })
  try {
    await next(tcp, 'connect')
    tcp.setKeepAlive(true, KEEP_ALIVE_MS)
    if (choice === 'plain') return tcp
    tcp.write(SSL_REQUEST)
    const reply = (await next(tcp, 'data')) as Buffer
    // Bytes that follow this reply were received unencrypted. An attacker could have inserted them, and they would be
    // read as part of the encrypted session.
    if (reply.toString('latin1') !== 'S') {
      if (choice === 'offered' && reply.toString('latin1') === 'N') return tcp
      throw new TlsNotOffered('the server does not offer TLS')
    }
    const encrypted = connectTls({ socket: tcp, ...tlsOptions(server.host, encryption) })
    encrypted.on('error', () => {})
    await next(encrypted, 'secureConnect')
    return encrypted
  } catch (error) {
    tcp.destroy()
    throw error
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** Returns the TLS options with which Node verifies the server in the same way as libpq does for this `sslmode`. */
function tlsOptions(host: string, { mode, read, hasRoots }: Encryption): ConnectionOptions {
  const common = { ...read(), host, ...(isIP(host) === 0 && { servername: host }) }
  if (mode === 'verify-full') return common
  const verifiesChain = mode === 'verify-ca' || (mode === 'require' && hasRoots)
  return verifiesChain
    ? { ...common, checkServerIdentity: () => undefined }
    : { ...common, rejectUnauthorized: false }
}

/** Resolves with the argument of the next event. @throws if the socket fails or ends first. */
function next(socket: Socket, event: 'connect' | 'data' | 'secureConnect'): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>()
  const closed = (): void =>
    reject(Object.assign(new Error('the server ended the connection'), { code: 'ECONNRESET' }))
  socket.once(event, resolve).once('error', reject).once('close', closed)
  return promise.finally(() => {
    socket.off(event, resolve).off('error', reject).off('close', closed)
  })
}
