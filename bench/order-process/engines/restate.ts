import { once } from 'node:events'
import { createServer } from 'node:http2'
import { createEndpointHandler, service, type Context } from '@restatedev/restate-sdk'
import { engineOfCalls, type StartEngine } from '../engine.ts'
import { createJsonClient } from '../post-json.ts'
import { createSteps } from '../steps.ts'

/**
 * Serves a handler with three `run` steps over HTTP/2. Restate writes the result of each step to its log
 * before the next step begins.
 */
export const start: StartEngine = async (settings) => {
  const { concurrency, restate } = settings
  const steps = createSteps(settings)
  const orderProcess = service({
    name: 'OrderProcess',
    handlers: {
      run: async (context: Context, id: string) => {
        const order = await context.run('order', () => steps.order(id))
        const report = await context.run('report', () => steps.report(order))
        return context.run('csv', () => steps.csv(id, report))
      },
    },
  })
  const endpoint = createServer(
    createEndpointHandler({ services: [orderProcess], logger: () => {} }),
  )
  await once(endpoint.listen(restate.endpointPort, '127.0.0.1'), 'listening')

  const client = createJsonClient(Math.max(32, concurrency))
  await client.post(`${restate.adminUrl}/deployments`, {
    uri: `http://127.0.0.1:${restate.endpointPort}`,
  })
  return engineOfCalls({
    run: (id) => client.post(`${restate.ingressUrl}/OrderProcess/run`, id),
    concurrency,
    async close() {
      endpoint.close()
      await client[Symbol.asyncDispose]()
    },
  })
}
