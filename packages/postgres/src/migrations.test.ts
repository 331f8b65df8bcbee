import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { checkMigrations } from './migrations.ts'

/** Two migrations as drizzle-kit writes them: the first creates a table, the second adds a column. */
const shipped = [
  { when: 1_000, tag: '0000_create', sql: 'create table …', columns: ['id', 'name'] },
  { when: 2_000, tag: '0001_add', sql: 'alter table …', columns: ['id', 'name', 'note'] },
]
const folder = mkdtempSync(join(tmpdir(), 'migrations-'))
afterAll(() => rmSync(folder, { recursive: true }))
mkdirSync(join(folder, 'meta'))
const write = (name: string, content: unknown): void =>
  writeFileSync(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content))
write('meta/_journal.json', {
  entries: shipped.map(({ when, tag }, idx) => ({ idx, when, tag })),
})
for (const [idx, { tag, sql, columns }] of shipped.entries()) {
  write(`${tag}.sql`, sql)
  write(`meta/000${idx}_snapshot.json`, {
    tables: {
      'public.item': {
        name: 'item',
        columns: Object.fromEntries(columns.map((name) => [name, {}])),
      },
    },
  })
}

const all = shipped.map(({ when, sql }) => ({
  at: when,
  hash: createHash('sha256').update(sql).digest('hex'),
}))
const columnsAfter = (index: number): Set<string> =>
  new Set(shipped[index]?.columns.map((column) => `item.${column}`))
const columns = columnsAfter(1)
const without = (column: string): Set<string> =>
  new Set([...columns].filter((name) => name !== column))

describe('comparing a database with the shipped migrations', () => {
  it.each([
    ['all migrations applied', all, columns, 'ok', 'all 2 applied'],
    ['no tables at all', null, new Set<string>(), 'warning', 'none applied yet'],
    [
      'the first migration only',
      all.slice(0, 1),
      columnsAfter(0),
      'warning',
      '0001_add not applied yet',
    ],
    [
      'a column that exists although its migration was not applied',
      all.slice(0, 1),
      columns,
      'problem',
      'item.note exists before its migration',
    ],
    [
      'tables without a migration table',
      null,
      columns,
      'problem',
      'half-migrated: there are tables',
    ],
    ['a missing column', all, without('item.name'), 'problem', 'item.name'],
    ['a migration that was left out', all.slice(1), columns, 'problem', 'half-migrated: 0000_'],
    [
      'an applied migration of other content',
      all.map((one, n) => (n === 0 ? { ...one, hash: 'other' } : one)),
      columns,
      'problem',
      'another form',
    ],
    [
      'a migration of a newer release',
      [...all, { at: Date.parse('2100-01-01'), hash: 'x' }],
      columns,
      'problem',
      'a newer version',
    ],
  ])(
    'checkMigrations reports the state of a database with %s',
    (_, applied, present, verdict, found) => {
      expect(
        checkMigrations({ folder, appliedBy: 'clerk' }, { applied, columns: present }),
      ).toEqual([expect.objectContaining({ verdict, found: expect.stringContaining(found) })])
    },
  )

  it('the remedy of checkMigrations names the service that applies the migrations', () => {
    const [result] = checkMigrations(
      { folder, appliedBy: 'clerk' },
      { applied: null, columns: new Set() },
    )
    expect(result?.remedy).toBe('Start a clerk: it creates its tables.')
  })
})
