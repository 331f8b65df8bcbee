import { runService } from '@integration-host/shared/process/lifecycle'
import { openBackends } from './backends.ts'
import { readConfig } from './config.ts'
import { startWebhookReceiver } from './service.ts'

await runService('webhook-receiver', async () => {
  const config = readConfig()
  await using opened = new AsyncDisposableStack()
  const backends = opened.use(openBackends(config))
  const service = opened.use(await startWebhookReceiver(config, backends))
  const running = opened.move()
  return { url: service.url, [Symbol.asyncDispose]: () => running.disposeAsync() }
})
