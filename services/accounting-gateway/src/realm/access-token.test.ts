import { IntegrationError } from '@integration-host/shared/errors'
import * as fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { type AccessToken, createAccessTokens, type TokenSource } from './access-token.ts'

/** A fake token-service whose responses arrive when the test says so. */
function source() {
  const versions = new Map<string, number>()
  const pending: { realm: string; answer: (failure?: Error | null) => void }[] = []
  const asked: string[] = []
  const refreshed: string[] = []
  let failure: Error | null = null
  const later = <T>(realm: string, value: () => T): Promise<T> => {
    const failureThen = failure
    return new Promise((resolve, reject) => {
      pending.push({
        realm,
        answer: (error = failureThen) => (error === null ? resolve(value()) : reject(error)),
      })
    })
  }
  const self = {
    asked,
    refreshed,
    versions,
    lifetimeMs: 3_600_000,
    fail(error: Error | null) {
      failure = error
    },
    pending,
    async answerAll() {
      while (pending.length > 0) {
        pending.shift()?.answer()
        for (let turn = 0; turn < 10; turn += 1) await Promise.resolve()
      }
    },
    port: {
      token(realm) {
        asked.push(realm)
        // The state of token-service when the request is made, not when the response arrives.
        const version = versions.get(realm) ?? 1
        const expiresAt = clock + self.lifetimeMs
        return later(realm, (): AccessToken => ({
          value: `${realm}/${version}`,
          expiresAt,
          version,
        }))
      },
      refresh(realm, version) {
        refreshed.push(`${realm}/${version}`)
        return later(realm, () => {
          if ((versions.get(realm) ?? 1) <= version) versions.set(realm, version + 1)
        })
      },
    } satisfies TokenSource,
  }
  return self
}

const failureOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => null,
    (error: unknown) => error,
  )

let clock = 0
const now = () => clock
const away = new IntegrationError('token_service_unavailable', 'away')

describe('the access token of a realm', () => {
  let tokens: ReturnType<typeof createAccessTokens>
  let service: ReturnType<typeof source>
  beforeEach(() => {
    clock = 1_000_000
    service = source()
    tokens = createAccessTokens({ source: service.port, now })
  })
  const got = async (realm: string) => {
    const promise = tokens.get(realm)
    await service.answerAll()
    return (await promise).value
  }

  it('is requested once, however many calls need it at the same time', async () => {
    const all = Promise.all(Array.from({ length: 100 }, () => tokens.get('1')))
    await service.answerAll()
    expect(new Set((await all).map(({ value }) => value))).toEqual(new Set(['1/1']))
    expect(service.asked).toEqual(['1'])
  })

  it('is cached until shortly before it expires', async () => {
    await got('1')
    clock += 3_600_000 - 5_001
    expect(tokens.cached('1')?.value).toBe('1/1')
    clock += 1
    expect(tokens.cached('1')).toBeNull()
  })

  it('is requested again in the background once it is old, while calls still use it', async () => {
    await got('1')
    clock += 300_000
    service.versions.set('1', 2)
    expect(tokens.cached('1')?.value).toBe('1/1')
    await service.answerAll()
    expect(tokens.cached('1')?.value).toBe('1/2')
    expect(service.asked).toHaveLength(2)
  })

  it('is used while token-service is unavailable, until it expires', async () => {
    await got('1')
    service.fail(away)
    clock += 3_500_000
    expect(await got('1')).toBe('1/1')
    clock += 100_000
    const late = failureOf(tokens.get('1'))
    await service.answerAll()
    expect(await late).toMatchObject({ code: 'token_service_unavailable' })
  })

  it('is evicted on a credential event, and a response then in flight is not cached', async () => {
    await got('1')
    tokens.evict('1', false)
    expect(tokens.cached('1')).toBeNull()
    const early = tokens.get('1')
    service.versions.set('1', 2)
    tokens.evict('1', false)
    await service.answerAll()
    expect((await early).value).toBe('1/1')
    expect(tokens.cached('1')).toBeNull()
    expect(await got('1')).toBe('1/2')
  })

  it('is force-refreshed once for a version that upstream rejected, however many calls received the 401', async () => {
    await got('1')
    const all = Promise.all(Array.from({ length: 50 }, () => tokens.refreshedAfter401('1', 1)))
    await service.answerAll()
    expect(new Set((await all).map(({ value }) => value))).toEqual(new Set(['1/2']))
    expect((await tokens.refreshedAfter401('1', 1)).value).toBe('1/2')
    expect(service.refreshed).toEqual(['1/1'])
  })

  it('is not force-refreshed if a newer one is cached', async () => {
    service.versions.set('1', 5)
    await got('1')
    expect((await tokens.refreshedAfter401('1', 4)).value).toBe('1/5')
    expect(service.refreshed).toEqual([])
  })

  it('shares the failure of a forced refresh with all calls of the same version for a short time', async () => {
    await got('1')
    service.fail(new IntegrationError('credential_faulted', 'gone'))
    for (let call = 0; call < 3; call += 1) {
      const refused = failureOf(tokens.refreshedAfter401('1', 1))
      await service.answerAll()
      expect(await refused).toMatchObject({ code: 'credential_faulted' })
    }
    expect(service.refreshed).toHaveLength(1)
    service.fail(null)
    tokens.evict('1', true) // credential.stored: the company was authorized again
    const healed = tokens.refreshedAfter401('1', 1)
    await service.answerAll()
    expect((await healed).value).toBe('1/2')
  })

  describe('that upstream rejects although it came from a forced refresh', () => {
    const renewed = async (version: number) => {
      const promise = tokens.refreshedAfter401('1', version)
      await service.answerAll()
      return promise
    }
    beforeEach(async () => {
      await got('1')
      expect(await renewed(1)).toMatchObject({ version: 2 })
    })

    it('is not force-refreshed again for a minute, even after events of refreshes', async () => {
      expect(tokens.isRefreshable('1', 2)).toBe(false)
      tokens.evict('1', false) // of our own refresh, and then of another replica's
      service.versions.set('1', 3)
      tokens.evict('1', false)
      await got('1')
      expect(tokens.isRefreshable('1', 3)).toBe(false)
      clock += 60_000
      expect(tokens.isRefreshable('1', 3)).toBe(true)
    })

    it('is force-refreshed at once if the company was authorized again', async () => {
      tokens.evict('1', true)
      expect(tokens.isRefreshable('1', 2)).toBe(true)
    })

    it('is returned to calls that were rejected with an older token', async () => {
      expect(tokens.isRefreshable('1', 1)).toBe(true)
      expect(await renewed(1)).toMatchObject({ version: 2 })
      expect(service.refreshed).toEqual(['1/1'])
    })

    it('shares a forced refresh in flight with a call that was rejected with an older token', async () => {
      service.versions.set('5', 2)
      const newer = tokens.refreshedAfter401('5', 2)
      const older = tokens.refreshedAfter401('5', 1)
      await service.answerAll()
      expect(await Promise.all([newer, older])).toMatchObject([{ version: 3 }, { version: 3 }])
      expect(service.refreshed).not.toContain('5/1')
    })
  })
})

describe('over all interleavings of calls, refreshes, events and responses', () => {
  const realm = fc.constantFrom('1', '2', '11', '12')
  const step = fc.oneof(
    { weight: 3, arbitrary: fc.record({ kind: fc.constant('get' as const), realm }) },
    {
      weight: 2,
      arbitrary: fc.record({ kind: fc.constant('refused' as const), realm, behind: fc.nat(2) }),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constant('event' as const),
        realm,
        isNewGrant: fc.boolean(),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant('time' as const), ms: fc.nat(400_000) }),
    },
    // Responses arrive in any order, and some are failures.
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant('answer' as const),
        which: fc.nat(20),
        fails: fc.boolean(),
      }),
    },
  )

  it('a token is never that of another realm, nor older than the version of an event', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 120 }), async (steps) => {
        clock = 1_000_000
        const service = source()
        const tokens = createAccessTokens({ source: service.port, now })
        const checks: Promise<void>[] = []
        const check = (promise: Promise<AccessToken>, of: string): void => {
          const told = service.versions.get(of) ?? 1
          checks.push(
            promise.then(
              (token) => {
                expect(token.value).toBe(`${of}/${token.version}`)
                expect(token.version).toBeGreaterThanOrEqual(told)
              },
              (error: unknown) => expect(error).toBe(away),
            ),
          )
        }
        for (const taken of steps) {
          switch (taken.kind) {
            case 'get':
              check(tokens.get(taken.realm), taken.realm)
              break
            case 'refused': {
              const version = Math.max(1, (service.versions.get(taken.realm) ?? 1) - taken.behind)
              if (tokens.isRefreshable(taken.realm, version))
                check(tokens.refreshedAfter401(taken.realm, version), taken.realm)
              break
            }
            case 'event':
              service.versions.set(taken.realm, (service.versions.get(taken.realm) ?? 1) + 1)
              tokens.evict(taken.realm, taken.isNewGrant)
              break
            case 'time':
              clock += taken.ms
              break
            case 'answer': {
              const [answer] = service.pending.splice(
                taken.which % (service.pending.length || 1),
                1,
              )
              answer?.answer(taken.fails ? away : null)
              for (let turn = 0; turn < 10; turn += 1) await Promise.resolve()
            }
          }
          for (const of of ['1', '2', '11', '12']) {
            const held = tokens.cached(of)
            if (held !== null) expect(held.value).toBe(`${of}/${held.version}`)
          }
        }
        await service.answerAll()
        await Promise.all(checks)
      }),
      { numRuns: 500 },
    )
  })
})
