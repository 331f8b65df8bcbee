import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'

const root = join(import.meta.dirname, '..')

/** Returns the output of the check of a program with this text. */
function check(text: string): { readonly isAccepted: boolean; readonly output: string } {
  const folder = mkdtempSync(join(tmpdir(), 'regular-expressions-'))
  try {
    writeFileSync(join(folder, 'program.ts'), text)
    const { status, stdout } = spawnSync(
      join(root, 'node_modules/.bin/oxlint'),
      ['--config', join(root, 'scripts/regular-expressions/oxlintrc.json'), folder],
      { cwd: root, encoding: 'utf8' },
    )
    return { isAccepted: status === 0, output: stdout }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

it.each([
  String.raw`text.replace(/[ \t]+$/, '')`,
  String.raw`text.replace(/0+$/, '')`,
  String.raw`/^(a+)+$/.test(text)`,
  'new RegExp(`[ ]+${name}$`)',
  String.raw`/(?!x)[ \t]+$/.test(text)`,
  "RegExp('a.*b')",
])('npm run verify rejects an expression that takes more than linear time: %s', (expression) => {
  expect(check(`${expression}\n`)).toEqual({
    isAccepted: false,
    output: expect.stringContaining('takes more than linear time') as unknown,
  })
})

it.each([String.raw`/\S[^\n]*/g.test(text)`, String.raw`/^[a-z]+ \d+$/.test(text)`])(
  'npm run verify accepts an expression that takes linear time: %s',
  (expression) => {
    expect(check(`${expression}\n`)).toMatchObject({ isAccepted: true })
  },
)
