import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const root = join(import.meta.dirname, '..')

/**
 * The files that parse JSON with another function than `parseJson`, which limits what another program or person may have
 * chosen. Each of these files parses what the product itself has written. Text of others does not belong here.
 */
const parsesOwnText: ReadonlySet<string> = new Set([
  'packages/shared/src/json.ts',
  // Files of this repository, or of the package.
  'packages/cli/src/doctor/broker-topology.ts',
  'packages/shared/src/http/reference-page.ts',
  'packages/postgres/src/migrations.ts',
  // The manifest and the lock file of the operator's own folder.
  'host/src/commands/init.ts',
  // The manifests of installed packages, for their licences.
  'services/console/src/build-app.ts',
  // Log lines and responses of this process.
  'host/src/run-dev.ts',
  'host/src/story.ts',
  'host/src/testing/sandbox.ts',
  'host/src/testing/test-host.ts',
  'packages/shared/src/observability/logger.ts',
  // What JSON.stringify has returned in the same file.
  'services/console/src/installation-watch.ts',
  'services/console/src/view/run-tracker.ts',
  'services/coordinator/src/step/redaction.ts',
  // Also parses with a reviver, which `parseJson` has not. The limits are checked before.
  'services/coordinator/src/run/json-normalization.ts',
  // A process as users write it. A step has stored the text, which has at most 1 MiB.
  'services/coordinator/src/processes/order-process.ts',
  // Records that only a service writes: sealed, or in its own store.
  'services/console/src/routes/repeated-requests.ts',
  'services/console/src/session/sign-in-flow.ts',
  'services/coordinator/src/adapters/memory/journal.ts',
  'services/token-service/src/adapters/file/rescue-folder.ts',
  'services/token-service/src/adapters/redis/authorization-store.ts',
  'services/token-service/src/adapters/redis/outbox.ts',
  'services/token-service/src/authorization/authorization-request.ts',
  'services/token-service/src/credential/credential-record.ts',
])

/** Matches a call that parses JSON without limits. `z.json()` is a schema. */
const PARSES = /\bJSON\.parse\b|(?<!\bz)\.json\(\)/

describe('the parsing of JSON', () => {
  it('text that others have chosen is only parsed within limits, by parseJson', () => {
    expect(filesThatParse().filter((file) => !parsesOwnText.has(file))).toEqual([])
  })

  it('every exception still parses JSON', () => {
    const files = filesThatParse()
    expect([...parsesOwnText].filter((file) => !files.includes(file))).toEqual([])
  })

  it.each([
    ['JSON.parse(text)', true],
    ['texts.map(JSON.parse)', true],
    ['await response.json()', true],
    ['await c.req.json()', true],
    ['z.record(z.string(), z.json())', false],
    ['c.json({ status: 1 })', false],
    ['// JSON.parse throws', false],
    ['/** As `JSON.parse` does. */', false],
  ])('the check finds code that parses JSON, but no comment: %s', (code, isFound) => {
    expect(PARSES.test(withoutComments(code))).toBe(isFound)
  })
})

/** The programs of the product, without tests. The browser program of the console reads only its own server. */
function filesThatParse(): string[] {
  return globSync('{services,packages}/*/src/**/*.ts', { cwd: root })
    .concat(globSync('host/src/**/*.ts', { cwd: root }))
    .filter((file) => !file.includes('node_modules') && !/\.(?:test|contract)\.ts$/.test(file))
    .filter((file) => PARSES.test(withoutComments(readFileSync(join(root, file), 'utf8'))))
}

const withoutComments = (text: string): string =>
  text.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/(?:^|\s)\/\/.*$/gm, '')
