/** Loaded before a coordinator: its OrderProcess as the repository has it, with `dispatch: 'inline'`. */
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
