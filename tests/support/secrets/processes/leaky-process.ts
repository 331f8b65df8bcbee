import { defineProcess, secret, z } from 'integration-host'

/** The environment variable with the key of each target. */
const VARIABLES = {
  bearer: 'LEAKY_PROCESS_BEARER_KEY',
  basic: 'LEAKY_PROCESS_BASIC_KEY',
  header: 'LEAKY_PROCESS_HEADER_KEY',
}

/**
 * Tries to leak the key of a target in every way, from the responses of the target and from the environment. The
 * targets differ in their authentication. Each target has a call limit, so the database also contains the number of
 * calls to each target.
 */
export default defineProcess('LeakyProcess', {
  input: z.object({
    target: z.enum(['bearer', 'basic', 'header']),
    way: z.enum(['echo', 'url', 'query', 'header', 'body', 'reason', 'error']),
  }),
  settings: { url: z.url(), bearerKey: secret(), basicKey: secret(), headerKey: secret() },
  targets: ({ url, bearerKey, basicKey, headerKey }) => {
    const limits = { perSecond: 100, concurrent: 2 }
    return {
      bearer: { url, ...limits, auth: { bearer: bearerKey } },
      basic: { url, ...limits, auth: { basic: { user: 'me', password: basicKey } } },
      header: { url, ...limits, auth: { header: { name: 'X-Api-Key', value: headerKey } } },
    }
  },
  retry: { maxAttempts: 1 },
})
  .step('echo', async (step) => {
    const { target } = step.initialData
    const reply = await step.fetch({ target, path: '/echo', method: 'POST' })
    const echo = reply.parse((body) => z.record(z.string(), z.string()).parse(body))
    const header = reply.header('x-echo')
    step.log.info({ echo, header }, reply.body)
    return step.complete({ echo, header })
  })
  .step('leak', (step) => {
    const { target, way } = step.initialData
    const key = process.env[VARIABLES[target]] ?? ''
    const post = { target, path: '/leak', method: 'POST' } as const
    step.log.warn({ key, list: [key], err: new Error(key) }, `the key is ${key}`)
    switch (way) {
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
