import { readFile } from 'node:fs/promises'
import { expect, it } from 'vitest'

const read = (path: string): Promise<string> => readFile(new URL(path, import.meta.url), 'utf8')

const FIRST = '../host/template/processes/invoice.ts'

it.each([
  ['first-process', FIRST],
  ['first-process', 'invoice-process.ts'],
  ['processes', 'report-process.ts'],
  ['processes', 'pay-bill.ts'],
])('docs/%s.md quotes the file %s without changes', async (page, file) => {
  const blocks = (await read(`../docs/${page}.md`)).split('```ts\n')
  expect(blocks.map((block) => block.split('\n```')[0])).toContain((await read(file)).trimEnd())
})

it('the first process that a newcomer reads has at most 25 lines', async () => {
  expect((await read(FIRST)).trimEnd().split('\n').length).toBeLessThanOrEqual(25)
})
