import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { writeApiReference } from '../scripts/reference/api-reference.ts'

let generated: string
beforeAll(async () => {
  generated = await mkdtemp(join(tmpdir(), 'reference-'))
  writeApiReference(generated)
}, 300_000)
afterAll(() => rm(generated, { recursive: true }))

/** Returns the pages of a folder by their paths in the folder. */
async function pagesOf(folder: string): Promise<Readonly<Record<string, string>>> {
  const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.md'))
  const texts = names.map(async (name) => [name, await readFile(join(folder, name), 'utf8')])
  return Object.fromEntries(await Promise.all(texts)) as Record<string, string>
}

it('docs/reference/ is up to date with the docstrings of the package (npm run docs)', async () => {
  const written = await pagesOf(join(import.meta.dirname, '../docs/reference'))
  expect(written).toEqual(await pagesOf(generated))
})

it('every name that the package exports has a docstring', async () => {
  const undocumented = Object.entries(await pagesOf(generated)).flatMap(([page, text]) =>
    text
      .split(/^### /m)
      .slice(1)
      .filter((section) => !isDescribed(section))
      .map((section) => `${page}: ${section.split('\n', 1)[0]}`),
  )
  expect(undocumented).toEqual([])
})

/**
 * Returns whether a section begins with text. The name of the section, its declaration and the
 * heading `Call Signature` do not count as text.
 */
function isDescribed(section: string): boolean {
  const [, ...lines] = section.replaceAll(/^```[^]*?^```$/gm, '').split('\n')
  const first = lines.find((line) => line !== '' && line !== '#### Call Signature') ?? ''
  return /^[A-Za-z`]/.test(first)
}
