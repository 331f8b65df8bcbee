/**
 * Replaces `@integration-host/shared/http/service-app` in every test. This module has the same exports and the same
 * behaviour. In addition, each app that it creates compares its routes and every response with its own OpenAPI
 * document, and checks the names in the document. A deviation fails the test that caused it. Therefore tests need not
 * compare status codes, content types and bodies with the document, and no undocumented route can be added.
 *
 * In the process of the tests, the alias in vitest.config.ts replaces the module. In the service processes of a
 * system, `check-service-process.ts` replaces it. The code of the services is not changed for this.
 */
import { createServiceApp as createApp } from '../../../packages/shared/src/http/service-app.ts'
import { convertSchemasOnce } from '../../../packages/shared/test-support/openapi-schemas.ts'
import {
  createResponseCheck,
  malformed,
  type OpenApiDocument,
  undocumented,
  unnamed,
} from './conformance.ts'
import { DEVIATION, deviations } from './deviations.ts'

export * from '../../../packages/shared/src/http/service-app.ts'

convertSchemasOnce()

/**
 * The documents that were already read in this process, by their text, with the checks that were created from them. Many
 * tests create the app of the same service. Compiling the schemas of the document takes longer than one of these tests.
 */
const documents = new Map<
  string,
  { readonly document: OpenApiDocument; readonly check: ReturnType<typeof createResponseCheck> }
>()

export const createServiceApp: typeof createApp = (deps, addRoutes) => {
  const app = createApp(deps, addRoutes)
  const handle = app.fetch
  // A service process runs no test that could fail because of the deviation. Therefore the deviation is also printed on
  // a line, and `support/system.ts` searches the output of the process for lines of this kind.
  const report = (deviation: string): void => {
    deviations.push(`${deps.name}: ${deviation}`)
    console.error(`${DEVIATION}${deps.name}: ${deviation}`)
  }

  async function loadDocument() {
    const request = new Request('http://127.0.0.1/openapi.json', { headers: { Host: '127.0.0.1' } })
    const text = await (await handle(request)).text()
    const known = documents.get(text)
    const document = known?.document ?? (JSON.parse(text) as OpenApiDocument)
    undocumented(app.routes, document).forEach(report)
    if (known !== undefined) return known.check
    unnamed(document).forEach(report)
    // This check would add a tenth to the processor time that a service process needs to start. Therefore the check is
    // made only in the process of the tests, where the tests of the routes of every service run.
    if (process.env['VITEST'] !== undefined) malformed(document).forEach(report)
    const created = createResponseCheck(document)
    documents.set(text, { document, check: created })
    return created
  }
  let check: ReturnType<typeof loadDocument> | undefined

  app.fetch = async (request, ...rest) => {
    const response = await handle(request, ...rest)
    // The body that `rawJson` has prepared is not part of the Response, but is sent with it.
    const { json = null } = (rest[0] ?? {}) as { json?: string | null }
    const isRaw = json !== null && response.ok && response.body === null
    const sent = isRaw ? new Response(json, response) : response
    const deviation = await (await (check ??= loadDocument()))(request, sent)
    if (deviation !== null) report(deviation)
    return response
  }
  return app
}
