/**
 * The process in which `engines/behind-http.ts` runs an engine. `POST /` runs a transaction, and its response comes when
 * the transaction is completed, like that of the coordinator with `Prefer: wait`. The process exits when its IPC channel
 * is closed.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import type { EngineName, EngineSettings } from './engine.ts'
import { startEngine } from './start-engine.ts'

const [, , name, settings = '{}'] = process.argv
const engine = await startEngine(name as EngineName, JSON.parse(settings) as EngineSettings)

const server = createServer((incoming, outgoing) => {
  void (async () => {
    const { TransactionID } = (await json(incoming)) as { readonly TransactionID: string }
    await engine.runOne(TransactionID)
    outgoing.writeHead(200).end()
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
