import { expect, it } from 'vitest'
import { createKnownCompanies } from './connected-companies.ts'

function setUp(connected: readonly string[], maxEntries = 10) {
  const state = { now: 0, isAvailable: true, connected: new Set(connected) }
  const requests: string[] = []
  const isConnected = createKnownCompanies({
    now: () => state.now,
    maxEntries,
    async isConnected(realm) {
      requests.push(realm)
      if (!state.isAvailable) throw new Error('unavailable')
      return state.connected.has(realm)
    },
  })
  return { state, requests, isConnected }
}

it('while the result for a company is kept, neither simultaneous nor later calls send a second request to token-service', async () => {
  const { requests, isConnected } = setUp(['1'])
  expect(await Promise.all([isConnected('1'), isConnected('1')])).toEqual([true, true])
  expect(await isConnected('1')).toBe(true)
  expect(requests).toEqual(['1'])
})

it('the result for a connected company is kept for a minute, and the result for an unknown company for 5 seconds', async () => {
  const { state, requests, isConnected } = setUp(['1'])
  expect([await isConnected('1'), await isConnected('2')]).toEqual([true, false])
  state.connected.add('2')
  state.now = 5_000
  expect([await isConnected('1'), await isConnected('2')]).toEqual([true, true])
  state.connected.delete('1')
  state.now = 60_000
  expect(await isConnected('1')).toBe(false)
  expect(requests).toEqual(['1', '2', '2', '1'])
})

it('the result of a failed request for a company is not kept', async () => {
  const { state, isConnected } = setUp(['1'])
  state.isAvailable = false
  await expect(isConnected('1')).rejects.toThrow('unavailable')
  state.isAvailable = true
  expect(await isConnected('1')).toBe(true)
})

it('the number of companies whose results are kept is limited', async () => {
  const { requests, isConnected } = setUp(['1', '2', '3'], 2)
  for (const realm of ['1', '2', '3', '3', '2', '1']) await isConnected(realm)
  expect(requests).toEqual(['1', '2', '3', '1'])
})
