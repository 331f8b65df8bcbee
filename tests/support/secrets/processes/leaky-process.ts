import { defineProcess, secret, z } from 'integration-host'

/** Tries to leak the key of its target in every way: through what the target sends back, and from the environment. */
export default defineProcess('LeakyProcess', {
  input: z.enum(['echo', 'url', 'query', 'header', 'body', 'reason', 'error']),
  settings: { erpUrl: z.url(), erpKey: secret() },
  targets: ({ erpUrl, erpKey }) => ({ erp: { url: erpUrl, auth: { bearer: erpKey } } }),
  retry: { maxAttempts: 1 },
})
  .step('echo', async (step) => {
    const reply = await step.fetch({ target: 'erp', path: '/echo', method: 'POST' })
    const echo = reply.parse((body) => z.record(z.string(), z.string()).parse(body))
    step.log.info({ echo, header: reply.header('x-echo') }, reply.body)
    return step.complete({ echo, header: reply.header('x-echo') })
  })
  .step('leak', (step) => {
    const key = process.env['LEAKY_PROCESS_ERP_KEY'] ?? ''
    const post = { target: 'erp', path: '/leak', method: 'POST' } as const
    step.log.warn({ key, list: [key], err: new Error(key) }, `the key is ${key}`)
    switch (step.initialData) {
      case 'echo':
        return step.execute({ ...post, path: '/echo' })
      case 'url':
        return step.execute({ ...post, path: `/leak/${key}` })
      case 'query':
        return step.execute({ ...post, query: { key } })
      case 'header':
        return step.execute({ ...post, headers: { 'x-key': key } })
      case 'body':
        return step.execute({ ...post, body: { key } })
      case 'reason':
        return step.fail(`the key is ${key}`)
      case 'error':
        throw new Error(`the key is ${key}`, { cause: new Error(key) })
    }
  })
