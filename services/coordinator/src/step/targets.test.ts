import { describe, expect, it } from 'vitest'
import { bindTargets } from './targets.ts'

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
