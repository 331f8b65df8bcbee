import { IntegrationError } from '@integration-host/shared/errors'
import * as fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { type AccessToken, createAccessTokens, type TokenSource } from './access-token.ts'

/** token-service as a state machine whose answers come when the test says so. */
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
        // What token-service knows when it is asked, not when the answer arrives.
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

  it('is asked for once, however many calls need it at the same time', async () => {
    const all = Promise.all(Array.from({ length: 100 }, () => tokens.get('1')))
    await service.answerAll()
    expect(new Set((await all).map(({ value }) => value))).toEqual(new Set(['1/1']))
    expect(service.asked).toEqual(['1'])
  })

  it('is in hand until shortly before it expires', async () => {
    await got('1')
    clock += 3_600_000 - 5_001
    expect(tokens.cached('1')?.value).toBe('1/1')
    clock += 1
    expect(tokens.cached('1')).toBeNull()
  })

  it('is asked for again in the background once it is old, while calls go on with it', async () => {
    await got('1')
    clock += 300_000
    service.versions.set('1', 2)
    expect(tokens.cached('1')?.value).toBe('1/1')
    await service.answerAll()
    expect(tokens.cached('1')?.value).toBe('1/2')
    expect(service.asked).toHaveLength(2)
  })

  it('serves on while token-service is away, until it expires', async () => {
    await got('1')
    service.fail(away)
    clock += 3_500_000
    expect(await got('1')).toBe('1/1')
    clock += 100_000
    const late = failureOf(tokens.get('1'))
    await service.answerAll()
    expect(await late).toMatchObject({ code: 'token_service_unavailable' })
  })

  it('is forgotten on a credential event, and the answer then under way is not kept', async () => {
    await got('1')
    tokens.drop('1', false)
    expect(tokens.cached('1')).toBeNull()
    const early = tokens.get('1')
    service.versions.set('1', 2)
    tokens.drop('1', false)
    await service.answerAll()
    expect((await early).value).toBe('1/1')
    expect(tokens.cached('1')).toBeNull()
    expect(await got('1')).toBe('1/2')
  })

  it('is refreshed by force once for a version that upstream refused, however many calls saw it', async () => {
    await got('1')
    const all = Promise.all(Array.from({ length: 50 }, () => tokens.renewed('1', 1)))
    await service.answerAll()
    expect(new Set((await all).map(({ value }) => value))).toEqual(new Set(['1/2']))
    expect((await tokens.renewed('1', 1)).value).toBe('1/2')
    expect(service.refreshed).toEqual(['1/1'])
  })

  it('is not refreshed by force when a newer one is in hand', async () => {
    service.versions.set('1', 5)
    await got('1')
    expect((await tokens.renewed('1', 4)).value).toBe('1/5')
    expect(service.refreshed).toEqual([])
  })

  it('is refused to all who ask for the same version shortly after a refresh has failed', async () => {
    await got('1')
    service.fail(new IntegrationError('credential_faulted', 'gone'))
    for (let call = 0; call < 3; call += 1) {
      const refused = failureOf(tokens.renewed('1', 1))
      await service.answerAll()
      expect(await refused).toMatchObject({ code: 'credential_faulted' })
    }
    expect(service.refreshed).toHaveLength(1)
    service.fail(null)
    tokens.drop('1', true) // credential.stored: the company was authorized again
    const healed = tokens.renewed('1', 1)
    await service.answerAll()
    expect((await healed).value).toBe('1/2')
  })

  describe('that upstream refuses although it came of a forced refresh', () => {
    const renewed = async (version: number) => {
      const promise = tokens.renewed('1', version)
      await service.answerAll()
      return promise
    }
    beforeEach(async () => {
      await got('1')
      expect(await renewed(1)).toMatchObject({ version: 2 })
    })

    it('is not worth another one for a minute, also when events tell of refreshes', async () => {
      expect(tokens.isRenewable('1', 2)).toBe(false)
      tokens.drop('1', false) // of our own refresh, and then of another replica's
      service.versions.set('1', 3)
      tokens.drop('1', false)
      await got('1')
      expect(tokens.isRenewable('1', 3)).toBe(false)
      clock += 60_000
      expect(tokens.isRenewable('1', 3)).toBe(true)
    })

    it('is worth one at once when the company was authorized again', async () => {
      tokens.drop('1', true)
      expect(tokens.isRenewable('1', 2)).toBe(true)
    })

    it('leaves calls that still had the token before to take the new one', async () => {
      expect(tokens.isRenewable('1', 1)).toBe(true)
      expect(await renewed(1)).toMatchObject({ version: 2 })
      expect(service.refreshed).toEqual(['1/1'])
    })

    it('is joined by a call that was refused with an older token, while it is under way', async () => {
      service.versions.set('5', 2)
      const newer = tokens.renewed('5', 2)
      const older = tokens.renewed('5', 1)
      await service.answerAll()
      expect(await Promise.all([newer, older])).toMatchObject([{ version: 3 }, { version: 3 }])
      expect(service.refreshed).not.toContain('5/1')
    })
  })
})

describe('over all interleavings of calls, refreshes, events and answers', () => {
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
    // Answers arrive in any order, and some are failures.
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant('answer' as const),
        which: fc.nat(20),
        fails: fc.boolean(),
      }),
    },
  )

  it("a token is never another realm's, nor older than what an event has told of", async () => {
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
              if (tokens.isRenewable(taken.realm, version))
                check(tokens.renewed(taken.realm, version), taken.realm)
              break
            }
            case 'event':
              service.versions.set(taken.realm, (service.versions.get(taken.realm) ?? 1) + 1)
              tokens.drop(taken.realm, taken.isNewGrant)
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
