import { until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { respondWith } from '../../test-support/fake-target.ts'
import { bearer, type Fixture, startEmbedded, type TestKey } from '../../test-support/fixture.ts'

const scopes = ['transactions:read']
const keys: readonly TestKey[] = [
  { id: 'company-43', scopes, realms: ['43'] },
  { id: 'invoices', scopes, processes: ['Invoice*'] },
]

let host: Fixture
/** Delays each audit until the test allows the audit to continue. */
const permits: (() => void)[] = []
const permitAudit = async (): Promise<void> => {
  await until(() => permits.length > 0)
  permits.shift()?.()
}
beforeAll(async () => {
  host = await startEmbedded({
    keys,
    wrapSource: (source) => ({
      ...source,
      async audit(processes) {
        await new Promise<void>((permit) => permits.push(permit))
        return source.audit(processes)
      },
    }),
  })
})
afterAll(async () => {
  for (const permit of permits) permit()
  await host[Symbol.asyncDispose]()
})

interface Summary {
  readonly Unfinished: readonly unknown[]
}

const path = '/processes/OrderProcess/summary'
const read = async (name = 'OrderProcess') => {
  const response = await host.call(`/processes/${name}/summary`)
  return [response.status, (await response.json()) as Summary] as const
}

describe('the summary of a process', () => {
  it('GET /processes/{process}/summary responds 503 before the first audit, and afterwards with the counts of the latest audit', async () => {
    const early = await host.call(path)
    expect([early.status, early.headers.get('Retry-After')]).toEqual([503, '5'])
    expect(await early.json()).toMatchObject({ code: 'summary_not_ready' })

    host.target.on('/order', respondWith(400, 'no'))
    await host.queue('1')
    await host.reached('1', 'Failed')
    const Group = { StepName: 'order', InDoubt: 0 }
    await permitAudit()
    await until(async () => (await read())[0] === 200)
    const [, summary] = await read()
    expect(summary).toEqual({
      At: expect.stringMatching(/Z$/),
      Process: 'OrderProcess',
      Unfinished: [],
      EndedBadly: [
        {
          ...Group,
          Status: 'Failed',
          ErrorClass: 'http_400',
          Count: 1,
          OldestCreatedAt: expect.stringMatching(/Z$/),
          FirstEndedAt: expect.stringMatching(/Z$/),
          ProviderError: null,
        },
      ],
      IsLowerBound: false,
    })

    await host.call('/processes/OrderProcess/pause', { method: 'POST' })
    await host.queue('2')
    expect(await read()).toEqual([200, summary])
    await permitAudit()
    await until(async () => (await read())[1].Unfinished.length > 0)
    expect((await read())[1].Unfinished).toMatchObject([
      { ...Group, Status: 'Queued', ErrorClass: null, WaitingFor: null, Count: 1 },
    ])
  })

  it('GET /processes/{process}/summary responds 404 for a process that is not loaded and has no runs', async () => {
    expect(await read('Unknown')).toMatchObject([404, { code: 'process_not_found' }])
  })

  it.each(['company-43', 'invoices'])(
    'the summary is rejected for the key %s, which may not read all runs of the process',
    async (id) => {
      const headers = bearer(id)
      expect((await host.call(path, { headers })).status).toBe(403)
    },
  )
})
