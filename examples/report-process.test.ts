import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readEmbeddedConfig } from '@integration-host/coordinator/config'
import { createMemoryTransactionSource } from '@integration-host/coordinator/memory-transaction-source'
import { bindSettings } from '@integration-host/coordinator/process'
import { startCoordinator } from '@integration-host/coordinator/service'
import type { TransactionView } from '@integration-host/shared/contracts/transaction'
import { createHealth } from '@integration-host/shared/observability/health'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import reportProcess from './report-process.ts'

const key = 'k'.repeat(40)
const erpKey = 'canary-erp-key-0123456789'

describe('the report process of docs/processes.md', () => {
  let stack: AsyncDisposableStack
  let calls: string[]
  let lines: string[]
  let dataDir: string
  let coordinator: string

  beforeEach(async () => {
    stack = new AsyncDisposableStack()
    calls = []
    lines = []
    // The report is ready at the third request for it. The responses contain the key that the target received.
    const server = createServer((request, response) => {
      calls.push(`${request.method} ${request.url} ${request.headers.authorization}`)
      const isReady = calls.length > 3
      const body =
        request.method === 'POST' ? { id: 7 + '', by: request.headers.authorization } : { rows: 66 }
      response.writeHead(request.method === 'POST' ? 201 : isReady ? 200 : 202)
      response.end(request.method === 'POST' || isReady ? JSON.stringify(body) : '')
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    stack.defer(async () => {
      server.close()
      server.closeAllConnections()
    })
    dataDir = await mkdtemp(join(tmpdir(), 'example-'))
    stack.defer(() => rm(dataDir, { recursive: true }))
    const logger = createLogger('example', 'debug', { write: (line) => void lines.push(line) })
    const config = readEmbeddedConfig({ PORT: '0', SERVICE_API_KEY: key, DATA_DIR: dataDir })
    const { port } = server.address() as AddressInfo
    const service = stack.use(
      await startCoordinator(config, {
        logger,
        health: createHealth(logger),
        source: stack.use(await createMemoryTransactionSource(dataDir)),
        bus: stack.use(createInProcessBus(logger)),
        processes: [
          bindSettings(reportProcess, {
            erpUrl: `http://127.0.0.1:${port}`,
            erpKey: new Secret(erpKey),
            pollSeconds: 0.05,
          }),
        ],
      }),
    )
    coordinator = `${service.url}/processes/ReportProcess/transactions`
  })
  afterEach(() => stack.disposeAsync())

  it('the report process waits until the report is ready, and its key occurs only in its calls', async () => {
    const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' }
    const body = JSON.stringify({ TransactionID: 'r-1', InitialData: { month: '2026-10' } })
    expect((await fetch(coordinator, { method: 'POST', headers, body })).status).toBe(202)
    let shown = ''
    const run = await eventually(async () => {
      shown = await (await fetch(`${coordinator}/r-1`, { headers })).text()
      const read = JSON.parse(shown) as TransactionView
      expect(read.Status).toBe('Completed')
      return read
    })
    expect(run.Items.map(({ StepName, Data }) => [StepName, Data])).toEqual([
      ['order', '7'],
      ['rows', 66],
    ])
    const bearer = `Bearer ${erpKey}`
    expect(calls).toEqual([
      `POST /reports ${bearer}`,
      ...Array.from({ length: 3 }, () => `GET /reports/7 ${bearer}`),
    ])
    expect(run.Items[0]?.ResponseBody).toBe('{"id":"7","by":"Bearer [secret]"}')
    expect(shown + lines.join('')).not.toContain(erpKey)
    const journal = await readFile(join(dataDir, 'ITSourceMemory.journal'), 'utf8')
    expect(journal).not.toContain(erpKey)
  })

  it('the report process file is identical to the file that docs/processes.md shows', async () => {
    const read = (path: string) => readFile(new URL(path, import.meta.url), 'utf8')
    const blocks = (await read('../docs/processes.md'))
      .split('```ts\n')
      .map((text) => text.split('```')[0])
    expect(blocks).toContain(await read('./report-process.ts'))
  })
})
