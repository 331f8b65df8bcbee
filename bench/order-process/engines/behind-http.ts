import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { engineOfCalls, type StartEngine } from '../engine.ts'
import { createJsonClient } from '../post-json.ts'
import { watchCompletions } from '../watch-completions.ts'

const SERVER = fileURLToPath(new URL('../engine-server.ts', import.meta.url))

/**
 * Runs the engine that `variant` names as a server in another process. The client does the same as the client of the
 * coordinator: it sends a POST request for each transaction and waits for its completion event. The latencies are
 * therefore comparable to those of the coordinator. The processor time includes that of the client.
 */
export const start: StartEngine = async (settings) => {
  const leaving = new AbortController()
  const server = fork(SERVER, [settings.variant, JSON.stringify({ ...settings, variant: '' })], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  const [url] = (await Promise.race([
    once(server, 'message'),
    once(server, 'exit').then(([code]) =>
      Promise.reject(new Error(`the server of ${settings.variant} exited with code ${code}`)),
    ),
  ])) as [string]
  const client = createJsonClient(settings.concurrency)
  const completions = await watchCompletions(url, leaving.signal)
  return engineOfCalls({
    async run(id) {
      const completed = completions.until(id)
      await client.post(url, { TransactionID: id })
      await completed
    },
    concurrency: settings.concurrency,
    async close() {
      leaving.abort()
      await client[Symbol.asyncDispose]()
      const gone = once(server, 'exit')
      server.disconnect()
      await gone
    },
  })
}
