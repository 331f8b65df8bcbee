import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { engineOfCalls, type StartEngine } from '../engine.ts'
import { createJsonClient } from '../post-json.ts'

const SERVER = fileURLToPath(new URL('../engine-server.ts', import.meta.url))

/**
 * Runs the engine that `variant` names as a server in another process. The client does the same as the client of the
 * coordinator: it sends a POST request for each transaction, whose response comes when the transaction is completed. The
 * latencies are therefore comparable to those of the coordinator. The processor time includes that of the client.
 */
export const start: StartEngine = async (settings) => {
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
  return engineOfCalls({
    run: (id) => client.post(url, { TransactionID: id }),
    concurrency: settings.concurrency,
    async close() {
      await client[Symbol.asyncDispose]()
      const gone = once(server, 'exit')
      server.disconnect()
      await gone
    },
  })
}
