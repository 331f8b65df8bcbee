import { Caller } from '@integration-host/shared/access/caller'
import { IntegrationError } from '@integration-host/shared/errors'
import { Hono } from 'hono'
import { describe, expect, it } from 'vitest'
import { respondWithKnownProcesses } from './app.ts'

/**
 * Returns the problem document of a request that fails with `error`. The key of the request may use the processes
 * `allowed`.
 */
async function problemFor(
  error: IntegrationError,
  loaded: readonly string[],
  allowed: readonly string[],
): Promise<{ readonly code: string; readonly detail: string }> {
  const app = new Hono()
  app.use((c, next) => {
    const grants = { isService: false, scopes: new Set<never>(), realms: ['*'], expiresAt: null }
    c.set('caller', new Caller({ keyId: 'k', processes: allowed, ...grants }))
    return next()
  })
  app.get('/', () => {
    throw error
  })
  const respond = respondWithKnownProcesses(new Map(loaded.map((name) => [name, null])))
  app.onError((thrown, c) => respond(c, thrown))
  return (await app.request('/')).json() as Promise<{ code: string; detail: string }>
}

const unknown = new IntegrationError('process_not_found', 'no process Invoce is loaded')

describe('the response to a request for an unknown process', () => {
  it('the response to a request for an unknown process names the loaded processes', async () => {
    expect(await problemFor(unknown, ['Invoice', 'Report'], ['*'])).toMatchObject({
      code: 'process_not_found',
      detail: 'no process Invoce is loaded; loaded: Invoice, Report',
    })
  })

  it('the response to a request for an unknown process does not name a process that the key may not use', async () => {
    const { detail } = await problemFor(unknown, ['Invoice', 'Payroll'], ['Inv*'])
    expect(detail).toBe('no process Invoce is loaded; loaded: Invoice')
    const none = await problemFor(unknown, ['Payroll'], ['Inv*'])
    expect(none.detail).toBe(
      'no process Invoce is loaded; no process that this key may use is loaded',
    )
  })

  it('the response to a request for an unknown process names at most ten processes', async () => {
    const names = Array.from({ length: 13 }, (_, index) => `P${index}`)
    const { detail } = await problemFor(unknown, names, ['*'])
    expect(detail).toMatch(/loaded: P0, .*, P9 and 3 more$/)
  })

  it('the responses to other errors do not name processes', async () => {
    const other = new IntegrationError('step_not_found', 'no such step')
    expect(await problemFor(other, ['Invoice'], ['*'])).toMatchObject({
      code: 'step_not_found',
      detail: 'no such step',
    })
  })
})
