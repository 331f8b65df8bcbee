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

// Node writes its compile cache only when a process exits by itself, and most tests end a service with SIGKILL. Writing
// after the start costs little once the cache is filled, because Node skips modules that it read from the cache.
setTimeout(flushCompileCache, 2_000).unref()
