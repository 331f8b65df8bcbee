import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { migrationFindings } from './migrations.ts'

const folder = new URL('../../../../services/coordinator/migrations/', import.meta.url)
const read = (name: string): string => readFileSync(new URL(name, folder), 'utf8')
const { entries } = JSON.parse(read('meta/_journal.json')) as {
  entries: { when: number; tag: string; idx: number }[]
}
const all = entries.map(({ when, tag }) => ({
  at: when,
  hash: createHash('sha256')
    .update(read(`${tag}.sql`))
    .digest('hex'),
}))
const newest = String(entries.length - 1).padStart(4, '0')
const { tables } = JSON.parse(read(`meta/${newest}_snapshot.json`)) as {
  tables: Record<string, { name: string; columns: object }>
}
const columns = new Set(
  Object.values(tables).flatMap(({ name, columns: of }) =>
    Object.keys(of).map((column) => `${name}.${column}`),
  ),
)
const without = (column: string): Set<string> =>
  new Set([...columns].filter((name) => name !== column))

describe('the migrations of a database', () => {
  it.each([
    ['all applied', all, columns, 'ok', 'all'],
    ['an empty database', null, new Set<string>(), 'warning', 'none applied yet'],
    ['an older database', all.slice(0, 1), columns, 'warning', 'not applied yet'],
    ['tables without a record', null, columns, 'problem', 'half-migrated: there are tables'],
    ['a column that is missing', all, without('Order_Item.Data'), 'problem', 'Order_Item.Data'],
    ['one left out', all.slice(1), columns, 'problem', 'half-migrated: 0000_'],
    [
      'one changed',
      all.map((one, n) => (n === 0 ? { ...one, hash: 'other' } : one)),
      columns,
      'problem',
      'another form',
    ],
    [
      'a newer database',
      [...all, { at: Date.parse('2100-01-01'), hash: 'x' }],
      columns,
      'problem',
      'a newer version',
    ],
  ])('are told for %s', (_, applied, present, verdict, found) => {
    expect(migrationFindings(applied, present)).toEqual([
      expect.objectContaining({ verdict, found: expect.stringContaining(found) }),
    ])
  })
})
