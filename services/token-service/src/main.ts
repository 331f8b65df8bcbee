import { runService } from '@integration-host/shared/process/lifecycle'
import { openBackends } from './backends.ts'
import { readConfig } from './config.ts'
import { startTokenService } from './service.ts'

await runService('token-service', async () => {
  const config = readConfig()
  await using opened = new AsyncDisposableStack()
  const backends = opened.use(await openBackends(config))
  const service = opened.use(await startTokenService(config, backends))
  const running = opened.move()
  return { url: service.url, [Symbol.asyncDispose]: () => running.disposeAsync() }
})
