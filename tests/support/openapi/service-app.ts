/**
 * Stands in for `@integration-host/shared/http/service-app` in every test: each app that it makes is held to
 * its own OpenAPI document, answer by answer. In the test's own process by an alias (vitest.config.ts), in
 * the processes of a system by `hold-process.ts`.
 */
import { createServiceApp as createApp } from '../../../packages/shared/src/http/service-app.ts'
import { DEVIATION, deviations } from './deviations.ts'
import { createAnswerCheck, type OpenApiDocument, undocumented } from './document.ts'

export * from '../../../packages/shared/src/http/service-app.ts'

export const createServiceApp: typeof createApp = (deps, addRoutes) => {
  const app = createApp(deps, addRoutes)
  const answerTo = app.fetch
  const tell = (deviation: string): void => {
    deviations.push(`${deps.name}: ${deviation}`)
    console.error(`${DEVIATION}${deps.name}: ${deviation}`)
  }

  async function openContract() {
    const request = new Request('http://127.0.0.1/openapi.json', { headers: { Host: '127.0.0.1' } })
    const document = (await (await answerTo(request)).json()) as OpenApiDocument
    undocumented(app.routes, document).forEach(tell)
    return createAnswerCheck(document)
  }
  let contract: ReturnType<typeof openContract> | undefined

  app.fetch = async (request, ...rest) => {
    const answer = await answerTo(request, ...rest)
    const deviation = await (await (contract ??= openContract()))(request, answer)
    if (deviation !== null) tell(deviation)
    return answer
  }
  return app
}
