import { expect, it } from 'vitest'
import { counted } from './texts.ts'

it('a count of one has its noun in the singular, and any other count in the plural', () => {
  expect([0, 1, 2].map((count) => counted(count, 'run'))).toEqual(['0 runs', '1 run', '2 runs'])
  expect([1, 2].map((count) => counted(count, 'company', 'companies'))).toEqual([
    '1 company',
    '2 companies',
  ])
})
