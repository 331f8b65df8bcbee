import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { runProcess } from '../packages/shared/test-support/start-process.ts'
import manifest from '../package.json' with { type: 'json' }

/** An installed package whose command line only prints its arguments. */
let root: string
const entry = (): string => join(root, 'scripts/integration-host.mjs')

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'package-entry-'))
  for (const folder of ['scripts', 'host/src']) mkdirSync(join(root, folder), { recursive: true })
  copyFileSync(join(import.meta.dirname, 'package-entry.mjs'), entry())
  for (const file of ['node-version.mjs', 'npm-parent.mjs'])
    copyFileSync(join(import.meta.dirname, file), join(root, 'scripts', file))
  writeFileSync(join(root, 'host/src/cli.js'), 'console.log(process.argv.slice(2).join())')
})
afterEach(() => rmSync(root, { recursive: true }))

async function run(node: string) {
  writeFileSync(join(root, 'package.json'), JSON.stringify({ type: 'module', engines: { node } }))
  return runProcess([entry(), 'audit', 'list'])
}

it('the program of the package runs on the version of Node that the package needs', async () => {
  expect(await run(manifest.engines.node)).toMatchObject({ code: 0, stdout: 'audit,list\n' })
})

it('the program of the package names the required version of Node even if an older Node cannot parse the program', async () => {
  writeFileSync(join(root, 'host/src/cli.js'), 'syntax of a later Node')
  expect(await run('>=999.1')).toEqual({
    code: 1,
    stdout: '',
    stderr: `integration-host needs Node 999.1 or newer, this is ${process.version}.\n`,
  })
})
