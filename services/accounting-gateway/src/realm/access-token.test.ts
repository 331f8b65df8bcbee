import { IntegrationError } from '@integration-host/shared/errors'
import { beforeEach, describe, expect, it } from 'vitest'
import { type AccessToken, createAccessTokens, type TokenSource } from './access-token.ts'

/** token-service as a state machine whose answers come when the test says so. */
function source() {
  const versions = new Map<string, number>()
  const pending: { realm: string; answer: () => void }[] = []
  const asked: string[] = []
  const refreshed: string[] = []
  let failure: Error | null = null
  const later = <T>(realm: string, value: () => T): Promise<T> => {
    const error = failure
    return new Promise((resolve, reject) => {
      pending.push({
        realm,
        answer: () => (error === null ? resolve(value()) : reject(error)),
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
    tokens.drop('1')
    expect(tokens.cached('1')).toBeNull()
    const early = tokens.get('1')
    service.versions.set('1', 2)
    tokens.drop('1')
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
    tokens.drop('1') // credential.stored: the company was authorized again
    const healed = tokens.renewed('1', 1)
    await service.answerAll()
    expect((await healed).value).toBe('1/2')
  })

  it("is never another realm's, nor an older one than an event told of, over random interleavings", async () => {
    let seed = 7
    const next = (n: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
      return Math.floor((seed / 2_147_483_648) * n)
    }
    const realms = ['1', '2', '11', '12']
    const checks: Promise<void>[] = []
    let checked = 0
    for (let step = 0; step < 5_000; step += 1) {
      const realm = realms[next(realms.length)] ?? ''
      const told = service.versions.get(realm) ?? 1
      const check = (promise: Promise<AccessToken>) =>
        checks.push(
          (async () => {
            const token = await promise
            checked += 1
            expect(token.value).toBe(`${realm}/${token.version}`)
            expect(token.version).toBeGreaterThanOrEqual(told)
          })(),
        )
      switch (next(6)) {
        case 0:
        case 1:
          check(tokens.get(realm))
          break
        case 2:
          check(tokens.renewed(realm, Math.max(1, told - next(2))))
          break
        case 3:
          service.versions.set(realm, told + 1)
          tokens.drop(realm)
          break
        case 4:
          clock += next(400_000)
          break
        default: {
          const [answer] = service.pending.splice(next(service.pending.length), 1)
          answer?.answer()
          await Promise.resolve()
        }
      }
      const held = tokens.cached(realm)
      if (held !== null) expect(held.value).toBe(`${realm}/${held.version}`)
    }
    await service.answerAll()
    await Promise.all(checks)
    expect(checked).toBeGreaterThan(1_000)
  })
})
