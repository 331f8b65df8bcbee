import { describe, expect, it } from 'vitest'
import type { CodeClaim } from './authorization-store.ts'
import { createCodeExchanges } from './code-exchange.ts'

const unused = async (): Promise<never> => Promise.reject(new Error('not called here'))

describe('a repeated code exchange', () => {
  it('fifty callers that wait for the exchange of the same code cause only one read of the store per poll', async () => {
    const failed = { kind: 'failed', code: 'code_exchange_failed', detail: 'x' } as const
    const pending: CodeClaim = { realm: '1', state: null, returnTo: null, result: null }
    let reads = 0
    await using exchanges = createCodeExchanges({
      authorizations: {
        claimCode: unused,
        settleCode: unused,
        async readCode() {
          reads += 1
          return reads < 10 ? pending : { ...pending, result: failed }
        },
      },
      provider: { exchangeCode: unused },
      store: { get: unused, put: unused, record: unused },
      auditCounter: { count() {} },
      refreshAheadMs: 0,
      idleLimitMs: 0,
      now: () => 0,
      sleep: async () => {},
      notifyOutbox() {},
      report() {},
    })
    const waiting = Array.from({ length: 50 }, () => exchanges.resultOf('code', pending))
    const results = await Promise.allSettled(waiting)
    expect(new Set(results.map(({ status }) => status))).toEqual(new Set(['rejected']))
    expect(reads).toBe(10)
    await expect(exchanges.resultOf('code', { ...pending, result: failed })).rejects.toThrow('x')
    expect(reads).toBe(10)
  })
})
