import { once } from 'node:events'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { connect } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'

const LISTENING = '0A'

/** Resolves when a process listens on the loopback port. */
export async function untilListening(port: number, deadlineMs: number): Promise<void> {
  const until = performance.now() + deadlineMs
  for (;;) {
    const socket = connect(port, '127.0.0.1')
    try {
      await once(socket, 'connect')
      return
    } catch (error) {
      if (performance.now() > until) throw error
      await delay(50)
    } finally {
      socket.destroy()
    }
  }
}

/**
 * Returns the id of the process on this machine that listens on the port of a server's URL.
 *
 * @throws {Error} if the server runs on another machine, or under a user whose processes this process may not
 * inspect
 */
export function processBehind(url: string, defaultPort: number): number {
  const port = Number(new URL(url).port || defaultPort)
  const sockets = new Set(
    ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((table) =>
      readFileSync(table, 'latin1')
        .split('\n')
        .map((line) => line.trim().split(/\s+/))
        .filter(
          ([, local = '', , state]) =>
            state === LISTENING && Number.parseInt(local.split(':')[1] ?? '', 16) === port,
        )
        .map((fields) => `socket:[${fields[9]}]`),
    ),
  )
  // Several processes may listen on the port if children have inherited the socket. The process with the smallest id is
  // their parent.
  const found = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .toSorted((a, b) => a - b)
    .find((pid) => openFiles(pid).some((file) => sockets.has(file)))
  if (found === undefined)
    throw new Error(`no process that this user may inspect listens on port ${port} of this machine`)
  return found
}

function openFiles(pid: number): readonly string[] {
  const folder = `/proc/${pid}/fd`
  try {
    return readdirSync(folder).map((name) => {
      try {
        return readlinkSync(`${folder}/${name}`)
      } catch {
        return '' // the process has closed this descriptor since it was listed
      }
    })
  } catch {
    return [] // the process has exited, or another user owns it
  }
}
