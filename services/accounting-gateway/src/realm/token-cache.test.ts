import { IntegrationError } from '@integration-host/shared/errors'
import * as fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { type AccessToken, createTokenCache, type TokenSource } from './token-cache.ts'

/** A fake of token-service. Its responses arrive when the test calls `respond`, in an order that the test selects. */
function fakeSource() {
  const versions = new Map<string, number>()
  const pending: { realm: string; respond: (failure?: Error | null) => void }[] = []
  const requested: string[] = []
  const refreshed: string[] = []
  let failure: Error | null = null
  const later = <T>(realm: string, value: () => T): Promise<T> => {
    const failureThen = failure
    return new Promise((resolve, reject) => {
      pending.push({
        realm,
        respond: (error = failureThen) => (error === null ? resolve(value()) : reject(error)),
      })
    })
  }
  const self = {
    requested,
    refreshed,
    versions,
    lifetimeMs: 3_600_000,
    fail(error: Error | null) {
      failure = error
    },
    pending,
    async respondToAll() {
      while (pending.length > 0) {
        pending.shift()?.respond()
        for (let turn = 0; turn < 10; turn += 1) await Promise.resolve()
      }
    },
    port: {
      token(realm) {
        requested.push(realm)
        // Like a real server, the fake reads the credential's state when a request arrives, even if the response is
        // sent later.
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
const unavailable = new IntegrationError('token_service_unavailable', 'unavailable')

describe('the access token of a realm', () => {
  let tokens: ReturnType<typeof createTokenCache>
  let service: ReturnType<typeof fakeSource>
  beforeEach(() => {
    clock = 1_000_000
    service = fakeSource()
    tokens = createTokenCache({ source: service.port, now })
  })
  const got = async (realm: string) => {
    const promise = tokens.get(realm)
    await service.respondToAll()
    return (await promise).value
  }

  it('the gateway sends only one token request for 100 concurrent calls of a realm', async () => {
    const all = Promise.all(Array.from({ length: 100 }, () => tokens.get('1')))
    await service.respondToAll()
    expect(new Set((await all).map(({ value }) => value))).toEqual(new Set(['1/1']))
    expect(service.requested).toEqual(['1'])
  })

  it('the gateway uses the cached token until 5 seconds before the token expires', async () => {
    await got('1')
    clock += 3_600_000 - 5_001
    expect(tokens.cached('1')?.value).toBe('1/1')
    clock += 1
    expect(tokens.cached('1')).toBeNull()
  })

  it('the gateway requests a new token in the background after 5 minutes and meanwhile uses the cached token', async () => {
    await got('1')
    clock += 300_000
    service.versions.set('1', 2)
    expect(tokens.cached('1')?.value).toBe('1/1')
    await service.respondToAll()
    expect(tokens.cached('1')?.value).toBe('1/2')
    expect(service.requested).toHaveLength(2)
  })

  it('while token-service is unavailable, the gateway uses the cached token until the token expires', async () => {
    await got('1')
    service.fail(unavailable)
    clock += 3_500_000
    expect(await got('1')).toBe('1/1')
    clock += 100_000
    const late = failureOf(tokens.get('1'))
    await service.respondToAll()
    expect(await late).toMatchObject({ code: 'token_service_unavailable' })
  })

  it('the gateway evicts the token on a credential event, and does not cache the response to an earlier token request', async () => {
    await got('1')
    tokens.evict('1', false)
    expect(tokens.cached('1')).toBeNull()
    const early = tokens.get('1')
    service.versions.set('1', 2)
    tokens.evict('1', false)
    await service.respondToAll()
    expect((await early).value).toBe('1/1')
    expect(tokens.cached('1')).toBeNull()
    expect(await got('1')).toBe('1/2')
  })

  it('the gateway forces one refresh for 50 calls that received 401 with the same token version', async () => {
    await got('1')
    const all = Promise.all(Array.from({ length: 50 }, () => tokens.refreshedAfter401('1', 1)))
    await service.respondToAll()
    expect(new Set((await all).map(({ value }) => value))).toEqual(new Set(['1/2']))
    expect((await tokens.refreshedAfter401('1', 1)).value).toBe('1/2')
    expect(service.refreshed).toEqual(['1/1'])
  })

  it('the gateway returns a newer cached token after a 401 instead of forcing a refresh', async () => {
    service.versions.set('1', 5)
    await got('1')
    expect((await tokens.refreshedAfter401('1', 4)).value).toBe('1/5')
    expect(service.refreshed).toEqual([])
  })

  it('for 5 seconds after a forced refresh has failed, all calls with the same token version get the error of this refresh', async () => {
    await got('1')
    service.fail(new IntegrationError('credential_faulted', 'gone'))
    for (let call = 0; call < 3; call += 1) {
      const failure = failureOf(tokens.refreshedAfter401('1', 1))
      await service.respondToAll()
      expect(await failure).toMatchObject({ code: 'credential_faulted' })
    }
    expect(service.refreshed).toHaveLength(1)
    service.fail(null)
    tokens.evict('1', true) // credential.stored: the company was authorized again
    const healed = tokens.refreshedAfter401('1', 1)
    await service.respondToAll()
    expect((await healed).value).toBe('1/2')
  })

  describe('a refreshed token that upstream also rejects', () => {
    const renewed = async (version: number) => {
      const promise = tokens.refreshedAfter401('1', version)
      await service.respondToAll()
      return promise
    }
    beforeEach(async () => {
      await got('1')
      expect(await renewed(1)).toMatchObject({ version: 2 })
    })

    it('the gateway does not force a second refresh of a rejected token within a minute, even if a `refreshed` event arrives', async () => {
      expect(tokens.isRefreshable('1', 2)).toBe(false)
      // The first event comes from this gateway's own refresh, and the second from the refresh of another gateway
      // replica.
      tokens.evict('1', false)
      service.versions.set('1', 3)
      tokens.evict('1', false)
      await got('1')
      expect(tokens.isRefreshable('1', 3)).toBe(false)
      clock += 60_000
      expect(tokens.isRefreshable('1', 3)).toBe(true)
    })

    it('the gateway permits another forced refresh at once if the company was authorized again', async () => {
      tokens.evict('1', true)
      expect(tokens.isRefreshable('1', 2)).toBe(true)
    })

    it('a call that was rejected with an older token version gets the refreshed token', async () => {
      expect(tokens.isRefreshable('1', 1)).toBe(true)
      expect(await renewed(1)).toMatchObject({ version: 2 })
      expect(service.refreshed).toEqual(['1/1'])
    })

    it('a call rejected with an older token version waits for the forced refresh in flight instead of starting another', async () => {
      service.versions.set('5', 2)
      const newer = tokens.refreshedAfter401('5', 2)
      const older = tokens.refreshedAfter401('5', 1)
      await service.respondToAll()
      expect(await Promise.all([newer, older])).toMatchObject([{ version: 3 }, { version: 3 }])
      expect(service.refreshed).not.toContain('5/1')
    })
  })
})

describe('random interleavings of calls, refreshes, events and responses', () => {
  const realm = fc.constantFrom('1', '2', '11', '12')
  const step = fc.oneof(
    { weight: 3, arbitrary: fc.record({ kind: fc.constant('get' as const), realm }) },
    {
      weight: 2,
      arbitrary: fc.record({ kind: fc.constant('rejected' as const), realm, behind: fc.nat(2) }),
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
    // `which` selects the pending request whose response arrives next, so responses can arrive in any order.
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant('response' as const),
        which: fc.nat(20),
        fails: fc.boolean(),
      }),
    },
  )

  it('the token cache never returns a token of another realm, and never a token older than the last credential event', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 120 }), async (steps) => {
        clock = 1_000_000
        const service = fakeSource()
        const tokens = createTokenCache({ source: service.port, now })
        const checks: Promise<void>[] = []
        const check = (promise: Promise<AccessToken>, of: string): void => {
          const announced = service.versions.get(of) ?? 1
          checks.push(
            promise.then(
              (token) => {
                expect(token.value).toBe(`${of}/${token.version}`)
                expect(token.version).toBeGreaterThanOrEqual(announced)
              },
              (error: unknown) => expect(error).toBe(unavailable),
            ),
          )
        }
        for (const action of steps) {
          switch (action.kind) {
            case 'get':
              check(tokens.get(action.realm), action.realm)
              break
            case 'rejected': {
              const version = Math.max(1, (service.versions.get(action.realm) ?? 1) - action.behind)
              if (tokens.isRefreshable(action.realm, version))
                check(tokens.refreshedAfter401(action.realm, version), action.realm)
              break
            }
            case 'event':
              service.versions.set(action.realm, (service.versions.get(action.realm) ?? 1) + 1)
              tokens.evict(action.realm, action.isNewGrant)
              break
            case 'time':
              clock += action.ms
              break
            case 'response': {
              const [response] = service.pending.splice(
                action.which % (service.pending.length || 1),
                1,
              )
              response?.respond(action.fails ? unavailable : null)
              for (let turn = 0; turn < 10; turn += 1) await Promise.resolve()
            }
          }
          for (const of of ['1', '2', '11', '12']) {
            const held = tokens.cached(of)
            if (held !== null) expect(held.value).toBe(`${of}/${held.version}`)
          }
        }
        await service.respondToAll()
        await Promise.all(checks)
      }),
      { numRuns: 500 },
    )
  })
})
