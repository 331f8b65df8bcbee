/** The sinks of the audit log: standard output, a syslog receiver and an HTTP receiver. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect, isIP } from 'node:net'
import { hostname } from 'node:os'
import type { Writable } from 'node:stream'
import type { AuditEntry } from '@integration-host/shared/contracts/audit'
import type { ProxiedFetch } from '@integration-host/shared/http/forward-proxy/tunnel'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { type SendAudit, SinkRejected } from '../../audit-forwarding/forward-audit.ts'

/** Writes `{"audit":{…}}` lines. The member tells them from the lines of the service's log. */
export const toStdout =
  (output: Writable = process.stdout): SendAudit =>
  (entries, deadline) => {
    const text = entries.map((audit) => `${JSON.stringify({ audit })}\n`).join('')
    return settledBefore(deadline, (resolve, reject) =>
      output.write(text, (error) => (error ? reject(error) : resolve())),
    )
  }

/**
 * Sends syslog messages (RFC 5424) of the facility "log audit", whose content is the entry as JSON. Over TCP they are
 * framed with their length (RFC 6587 §3.4.1). UDP has no acknowledgement: an entry counts as taken when it was sent.
 *
 * @param address `udp://host:port` or `tcp://host:port`
 */
export const toSyslog = (address: URL): SendAudit => {
  const to = { host: address.hostname.replace(/^\[|\]$/g, ''), port: Number(address.port) }
  return address.protocol === 'udp:' ? toUdp(to) : toTcp(to)
}

interface Receiver {
  readonly host: string
  readonly port: number
}

const toUdp =
  ({ host, port }: Receiver): SendAudit =>
  async (entries, deadline) => {
    const socket = createSocket(isIP(host) === 6 ? 'udp6' : 'udp4')
    try {
      await settledBefore(deadline, (resolve, reject) => {
        socket.once('error', reject)
        socket.connect(port, host, resolve)
      })
      // One after another, so that the kernel reports a closed port at the second message at the latest.
      for (const entry of entries)
        await settledBefore(deadline, (resolve, reject) =>
          socket.send(syslogMessage(entry), (error) => (error ? reject(error) : resolve())),
        )
    } finally {
      socket.close()
    }
  }

/**
 * Syslog over TCP has no acknowledgement either, and what was written may be lost with the connection. Therefore each
 * batch has a connection of its own: a receiver closes it in good order only after it has read all of it.
 */
const toTcp =
  (to: Receiver): SendAudit =>
  async (entries, deadline) => {
    const frames = entries.map((entry) => {
      const message = syslogMessage(entry)
      return Buffer.concat([Buffer.from(`${message.length} `), message])
    })
    const socket = connect(to)
    try {
      await settledBefore(deadline, (resolve, reject) => {
        let isEnded = false
        socket.once('error', reject)
        socket.once('end', () => (isEnded = true))
        socket.once('close', () => {
          if (isEnded && socket.writableFinished) resolve()
          else reject(new SinkRejected('connection lost'))
        })
        socket.resume() // what a receiver sends is not read
        socket.end(Buffer.concat(frames))
      })
    } finally {
      socket.destroy()
    }
  }

/** `<110>`: facility 13 (log audit), severity 6 (informational). */
function syslogMessage(entry: AuditEntry): Buffer {
  const host =
    hostname()
      .replace(/[^\x21-\x7e]/g, '')
      .slice(0, 255) || '-'
  const head = `<110>1 ${entry.At} ${host} token-service ${process.pid} ${entry.What}`
  return Buffer.from(`${head} - ${JSON.stringify(entry)}`)
}

/** Sends batches as NDJSON. Every response but 2xx means that the batch is sent again. Redirects are not followed. */
export const toWebhook =
  (url: string, key: Secret, send: ProxiedFetch = fetch): SendAudit =>
  async (entries, deadline) => {
    const response = await send(url, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${key.reveal()}`,
        'Content-Type': 'application/x-ndjson',
      },
      body: entries.map((entry) => `${JSON.stringify(entry)}\n`).join(''),
      redirect: 'manual',
      signal: deadline,
    })
    await response.body?.cancel()
    if (!response.ok) throw new SinkRejected(`status ${response.status}`)
  }

async function settledBefore(
  deadline: AbortSignal,
  start: (resolve: () => void, reject: (error: unknown) => void) => void,
): Promise<void> {
  if (deadline.aborted) throw new SinkRejected('timeout')
  const done = new AbortController()
  try {
    await Promise.race([
      new Promise<void>(start),
      once(deadline, 'abort', { signal: done.signal }).then(() => {
        throw new SinkRejected('timeout')
      }),
    ])
  } finally {
    done.abort()
  }
}
