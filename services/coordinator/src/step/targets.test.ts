import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { defineProcess } from './define-process.ts'
import { secret } from './settings.ts'
import { bindTargets, defineTarget } from './targets.ts'

const bind = (members: object) =>
  bindTargets({ erp: { url: 'http://erp', ...members } }, []).get('erp')

describe('the limits of a target', () => {
  it.each([
    [{}, null],
    [{ perSecond: 0.5 }, { intervalMs: 2_000, concurrent: null }],
    [{ perSecond: 1 / 86_400 }, { intervalMs: 86_400_000, concurrent: null }],
    [{ concurrent: 3 }, { intervalMs: 0, concurrent: 3 }],
    [
      { perSecond: 1_000, concurrent: 1_000 },
      { intervalMs: 1, concurrent: 1_000 },
    ],
  ])('a target accepts the limits %j', (members, limits) => {
    expect(bind(members)?.limits).toEqual(limits)
  })

  const wrong = [0, -1, Number.NaN, Number.POSITIVE_INFINITY, '5', null, [5]]
  it.each([
    ['perSecond', 'a number from 1/86400 to 1000', [...wrong, 1_001, 1 / 86_401]],
    ['concurrent', 'a whole number from 1 to 1000', [...wrong, 1_001, 1.5]],
    ['timeoutMs', 'more than 0, at most 1500000', [...wrong, 1_500_001]],
  ])('the member %s of a target must be %s', (member, rule, values) => {
    for (const value of values)
      expect(() => bind({ [member]: value }), `${member}: ${String(value)}`).toThrow(
        `target erp: ${member} must be ${rule}`,
      )
  })
})

describe('a target that several processes share', () => {
  const erp = defineTarget('erp', { url: 'http://erp', perSecond: 5, concurrent: 2 })

  it('every process that lists the target counts its calls under the name of the target', () => {
    const bound = bindTargets({ erp, ledger: erp, own: { url: 'http://erp', perSecond: 5 } }, [])
    expect(bound.get('erp')).toMatchObject({
      shared: 'erp',
      limits: { intervalMs: 200, concurrent: 2 },
    })
    expect(bound.get('ledger')?.shared).toBe('erp')
    expect(bound.get('own')?.shared).toBeNull()
  })

  it('a process may add a URL and an authentication from its settings, but not change the limits', () => {
    const limits = defineTarget('erp', { perSecond: 5 })
    const process = defineProcess('P', {
      settings: { erpUrl: z.url(), erpKey: secret() },
      targets: ({ erpUrl, erpKey }) => ({
        erp: { ...limits, url: erpUrl, auth: { bearer: erpKey } },
      }),
    }).step('first', (step) => step.execute({ target: 'erp', path: '/x' }))
    const given = { erpUrl: 'http://erp', erpKey: undefined }
    expect(process.targetsOf(given as never)).toMatchObject({ erp: { perSecond: 5 } })
    expect(bindTargets({ erp: { ...limits, url: 'http://erp' } }, []).get('erp')?.shared).toBe(
      'erp',
    )
    expect(() => bindTargets({ erp: { ...erp, perSecond: 6 } }, [])).toThrow(
      'target erp: its limits are those of the shared target erp: change them there',
    )
  })

  it.each([
    ['9', {}, '9 cannot name a target'],
    ['erp', { perSecond: 0 }, 'target erp: perSecond must be a number from 1/86400 to 1000'],
    ['erp', { concurrent: 1.5 }, 'target erp: concurrent must be a whole number from 1 to 1000'],
    ['erp', { perMinute: 5 }, 'target erp: has no member perMinute'],
    ['erp', 'http://erp', 'target erp: must be an object'],
  ])('the definition of the target %s with %j is rejected: %s', (name, members, error) => {
    expect(() => defineTarget(name, members as object)).toThrow(error)
  })

  it('the types of a target are those of a target of one process', () => {
    expectTypeOf(erp.url).toEqualTypeOf<'http://erp'>()
    void (() => {
      // @ts-expect-error the limit is a number
      defineTarget('erp', { perSecond: '5' })
      // @ts-expect-error there is no such member
      defineTarget('erp', { perMinute: 5 })
      // @ts-expect-error the target has no URL
      defineProcess('P', { targets: { erp: defineTarget('erp', { perSecond: 5 }) } })
    })
  })
})
