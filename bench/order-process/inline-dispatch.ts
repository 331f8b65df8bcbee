/** A coordinator process preloads this module, which sets `dispatch: 'inline'` for the repository's OrderProcess. */
import { registerHooks } from 'node:module'

registerHooks({
  load(url, context, nextLoad) {
    if (!url.endsWith('/processes/order-process.ts')) return nextLoad(url, context)
    const source = `
      import definition from ${JSON.stringify(`${url}?as-it-is`)}
      export default { ...definition, dispatch: 'inline' }`
    return { format: 'module', source, shortCircuit: true }
  },
})
