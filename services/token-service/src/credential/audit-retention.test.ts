import { describe, expect, it } from 'vitest'
import { ACTIONS_PER_DAY, createActionQuota } from './audit-retention.ts'

describe('the quota of actions whose audit entries are kept', () => {
  it('rejects the action of a key that has none left, until the next day in UTC', async () => {
    let now = Date.parse('2026-11-28T23:59:30Z')
    const taken: unknown[][] = []
    let isLeft = true
    const takeActions = async (...args: unknown[]): Promise<boolean> => {
      taken.push(args)
      return isLeft
    }
    const take = createActionQuota({ takeActions }, () => now)
    await take('erp', 500)
    isLeft = false
    await expect(take('erp', 1)).rejects.toMatchObject({
      code: 'daily_actions_used',
      retryAfterSeconds: 30,
    })
    now += 30_000
    isLeft = true
    await take('erp', 1)
    const day = Date.parse('2026-11-28') / 86_400_000
    expect(taken).toEqual([
      ['erp', day, 500, ACTIONS_PER_DAY],
      ['erp', day, 1, ACTIONS_PER_DAY],
      ['erp', day + 1, 1, ACTIONS_PER_DAY],
    ])
  })
})
