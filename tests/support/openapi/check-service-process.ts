/**
 * Adds the OpenAPI checks to a service that runs as a separate process. `node --import` loads this file before the main
 * module of the service. This file then replaces the module `@integration-host/shared/http/service-app` with
 * `checked-service-app.ts`. In the process of the tests, the alias in vitest.config.ts does the same.
 *
 * `support/system.ts` loads this file in tests, but not in benchmarks.
 */
import { flushCompileCache, registerHooks } from 'node:module'

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === '@integration-host/shared/http/service-app'
      ? { url: new URL('checked-service-app.ts', import.meta.url).href, shortCircuit: true }
      : next(specifier, context),
})

// By default, Node writes its compile cache only when a process exits without a signal, but most tests end a service
// with SIGKILL. Therefore this process writes the cache soon after its start. If the cache is already filled, this
// costs little, because Node does not write modules that it has read from the cache.
setTimeout(flushCompileCache, 2_000).unref()
