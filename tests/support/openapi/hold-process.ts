/** Loaded before a service's main (`node --import`): its app is held to its OpenAPI document. */
import { registerHooks } from 'node:module'

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === '@integration-host/shared/http/service-app'
      ? { url: new URL('service-app.ts', import.meta.url).href, shortCircuit: true }
      : next(specifier, context),
})
