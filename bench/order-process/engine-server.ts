/**
 * The process in which `engines/behind-http.ts` runs an engine. `POST /` starts a transaction, and `GET /events` streams
 * the completions as the coordinator does. The process exits when its IPC channel is closed.
 */
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import type { EngineName, EngineSettings } from './engine.ts'
import { startEngine } from './start-engine.ts'

const [, , name, settings = '{}'] = process.argv
const engine = await startEngine(name as EngineName, JSON.parse(settings) as EngineSettings)
const watchers = new Set<ServerResponse>()

async function run(id: string): Promise<void> {
  await engine.runOne(id)
  const data = JSON.stringify({ TransactionID: id, Status: 'Completed' })
  for (const watcher of watchers) watcher.write(`data: ${data}\n\n`)
}

const server = createServer((incoming, outgoing) => {
  if (incoming.method === 'GET') {
    watchers.add(outgoing)
    outgoing.on('close', () => watchers.delete(outgoing))
    outgoing.writeHead(200, { 'Content-Type': 'text/event-stream' }).flushHeaders()
  } else
    void (async () => {
      const { TransactionID } = (await json(incoming)) as { readonly TransactionID: string }
      // The response does not wait for a commit, which only makes the latency shorter.
      outgoing.writeHead(202).end()
      await run(TransactionID)
    })()
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')
process.on('disconnect', () => {
  void (async () => {
    await engine[Symbol.asyncDispose]()
    process.exit()
  })()
})
process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
