/**
 * OpenAPI conformance in a service's own process. Loaded by `node --import` before the service's main, it
 * replaces the module `@integration-host/shared/http/service-app` by `checked-service-app.ts`, as the alias in
 * vitest.config.ts does in the process of the tests. `support/system.ts` loads it; benchmarks do not.
 */
import { registerHooks } from 'node:module'

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === '@integration-host/shared/http/service-app'
      ? { url: new URL('checked-service-app.ts', import.meta.url).href, shortCircuit: true }
      : next(specifier, context),
})
