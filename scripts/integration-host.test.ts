import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { runProcess } from '../packages/shared/test-support/start-process.ts'
import manifest from '../package.json' with { type: 'json' }

/**
 * A checkout for the tests. It has the `bin` of the real package.json and the real program file. Its bootstrap only
 * prints how it was called.
 */
let root: string

beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'integration-host-test-')))
  for (const folder of ['scripts', 'work']) mkdirSync(join(root, folder))
  const { name, version, type, bin } = manifest
  writeFileSync(join(root, 'package.json'), JSON.stringify({ name, version, type, bin }))
  const file = bin['integration-host']
  copyFileSync(join(import.meta.dirname, '..', file), join(root, file))
  // The executable bit may be missing in a checkout that was unpacked from an archive.
  chmodSync(join(root, file), 0o644)
  writeFileSync(
    join(root, 'scripts/bootstrap.mjs'),
    'console.log(JSON.stringify({ args: process.argv.slice(2), from: process.env.INIT_CWD }))',
  )
})
afterEach(() => rmSync(root, { recursive: true }))

async function npx(folder: string): Promise<unknown> {
  const { stdout } = await runProcess(
    ['--no', '--', 'integration-host', 'audit', 'list', '--json'],
    {
      program: 'npx',
      cwd: join(root, folder),
      env: {
        npm_config_cache: join(root, 'cache'),
        npm_config_registry: 'http://127.0.0.1:1', // no server listens there
        npm_config_update_notifier: 'false',
      },
    },
  )
  return JSON.parse(stdout)
}

it.each(['.', 'work'])(
  'npx finds the program integration-host without a package registry when called in the folder %s of a checkout',
  async (folder) => {
    expect(await npx(folder)).toEqual({
      args: ['host/src/cli.ts', 'audit', 'list', '--json'],
      from: join(root, folder),
    })
  },
)
