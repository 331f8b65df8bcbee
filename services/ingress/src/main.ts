import { lookup } from 'node:dns/promises'
import { createHealth } from '@integration-host/shared/observability/health'
import { runService } from '@integration-host/shared/process/lifecycle'
import { createLogger } from '@integration-host/shared/observability/logger'
import { readConfig } from './config.ts'
import { type Endpoint, startForwarder } from './forwarder.ts'

await runService('ingress', async () => {
  const config = readConfig()
  const health = createHealth(createLogger('ingress', config.LOG_LEVEL))
  const forwarders = await Promise.all(
    config.TARGETS.map((target) =>
      startForwarder({
        listen: { host: config.HOST, port: target.port },
        replicas: () => replicasOf(target),
        dependency: health.dependency(target.host),
      }),
    ),
  )
  return {
    url: forwarders.map(({ url }) => url).join(' '),
    async [Symbol.asyncDispose]() {
      await Promise.all(forwarders.map((forwarder) => forwarder[Symbol.asyncDispose]()))
    },
  }
})

/** One for each address of the name, which is how Docker and Kubernetes tell of replicas. */
async function replicasOf({ host, port }: Endpoint): Promise<readonly Endpoint[]> {
  const addresses = await lookup(host, { all: true })
  return addresses.map(({ address }) => ({ host: address, port }))
}
