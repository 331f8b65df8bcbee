/**
 * Replaces `@integration-host/shared/http/service-app` in every test. It exports the same names and behaves the
 * same, but each app that it creates compares its routes and every response with its own OpenAPI document.
 * A deviation fails the test that caused it. So no test has to check status codes, content types and bodies
 * against the document by itself, and no route can be added without being documented.
 *
 * Two mechanisms do the replacement: in the process of the tests the alias in vitest.config.ts, in the service
 * processes of a system `check-service-process.ts`. The services themselves know nothing of it.
 */
import { createServiceApp as createApp } from '../../../packages/shared/src/http/service-app.ts'
import { createResponseCheck, type OpenApiDocument, undocumented } from './conformance.ts'
import { DEVIATION, deviations } from './deviations.ts'

export * from '../../../packages/shared/src/http/service-app.ts'

export const createServiceApp: typeof createApp = (deps, addRoutes) => {
  const app = createApp(deps, addRoutes)
  const handle = app.fetch
  // A service process has no test to fail: `support/system.ts` searches its output for these lines.
  const report = (deviation: string): void => {
    deviations.push(`${deps.name}: ${deviation}`)
    console.error(`${DEVIATION}${deps.name}: ${deviation}`)
  }

  async function loadDocument() {
    const request = new Request('http://127.0.0.1/openapi.json', { headers: { Host: '127.0.0.1' } })
    const document = (await (await handle(request)).json()) as OpenApiDocument
    undocumented(app.routes, document).forEach(report)
    return createResponseCheck(document)
  }
  let check: ReturnType<typeof loadDocument> | undefined

  app.fetch = async (request, ...rest) => {
    const response = await handle(request, ...rest)
    const deviation = await (await (check ??= loadDocument()))(request, response)
    if (deviation !== null) report(deviation)
    return response
  }
  return app
}
