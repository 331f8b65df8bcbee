import { connect } from 'node:net'
import type { Probe } from '../../config.ts'

/**
 * Builds an internet probe. The probe of a URL resolves with true after any HTTP response. The probe of a TCP port
 * resolves with true if the port accepts a connection.
 */
export const createProbe =
  (probe: Probe) =>
  (signal: AbortSignal): Promise<boolean> =>
    probe.kind === 'http' ? responds(probe.url, signal) : opens(probe.host, probe.port, signal)

async function responds(url: string, signal: AbortSignal): Promise<boolean> {
  try {
    const { body } = await fetch(url, { method: 'HEAD', redirect: 'manual', signal })
    await body?.cancel()
    return true
  } catch {
    return false
  }
}

function opens(host: string, port: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve(false)
    const socket = connect({ host, port })
    const end = (isOpen: boolean): void => {
      signal.removeEventListener('abort', abort)
      socket.destroy()
      resolve(isOpen)
    }
    const abort = (): void => end(false)
    signal.addEventListener('abort', abort, { once: true })
    socket.once('connect', () => end(true))
    socket.once('error', () => end(false))
  })
}
