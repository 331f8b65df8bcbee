import { expect, it } from 'vitest'
import { createExchangeAdmission } from './callback.ts'

it('browsers of one network that fill the queue for code exchanges keep out no browser of another network', async () => {
  const admission = createExchangeAdmission()
  const flood = Array.from({ length: 50 }, () =>
    admission.admit('browser', '198.51.100.0/24').catch(() => null),
  )
  const held = await Promise.all(flood.slice(0, 8)) // all permits; 32 callers wait, and the last ten are rejected
  expect(await Promise.all(flood.slice(40))).toEqual(Array(10).fill(null))
  const other = admission.admit('browser', '203.0.113.0/24')
  // The caller of the other network takes the place of the last caller of the first one, and gets the second turn.
  expect(await flood[39]).toBeNull()
  for (const permit of held.slice(0, 2)) permit?.release(false)
  const permits = await Promise.all([flood[8], other])
  for (const permit of [...held.slice(2), ...permits]) permit?.release(false)
  await Promise.all(flood.slice(9, 39).map(async (permit) => (await permit)?.release(false)))
})
