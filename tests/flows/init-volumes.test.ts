/**
 * Runs `init` on temporary folders instead of the volumes. `init` changes the owners of files, so the tests need root.
 * Another test, `npm run test:compose`, runs `init` in its container.
 */
import { createHash, randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseKeyList } from '@integration-host/shared/access/key-list'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { parse } from 'yaml'

const ROOT = join(import.meta.dirname, '../..')
const compose = parse(readFileSync(join(ROOT, 'docker-compose.yml'), 'utf8'), { merge: true }) as {
  readonly services: { readonly init: { readonly volumes: readonly string[] } }
}
const volumes = compose.services.init.volumes.map((mount) => mount.split(':')[0] ?? '')

let root: string
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'volumes-'))
  for (const volume of volumes) mkdirSync(join(root, volume))
})
afterEach(() => rm(root, { recursive: true }))

const PROGRAM = join(ROOT, 'scripts/init-volumes.ts')
const init = () => startProcess([PROGRAM, root]).ended
const at = (path: string): string => join(root, path)
const read = (path: string): string => readFileSync(at(path), 'utf8')
const digest = (key: string): string => createHash('sha256').update(key).digest('hex')
const listed = () => parseKeyList(read('service-keys/service_keys.json')).list ?? []
const entry = (id: string) => listed().find((key) => key.id === id)
const KEYS = {
  application: 'application_key',
  operator: 'operator_key',
  'demo-api': 'demo_api_key',
}

/** Returns the content of every file, by its path. */
function contents(): Readonly<Record<string, string>> {
  const files = readdirSync(root, { recursive: true, withFileTypes: true }).filter((f) =>
    f.isFile(),
  )
  const paths = files.map(({ parentPath, name }) => join(parentPath, name).slice(root.length + 1))
  return Object.fromEntries(paths.toSorted().map((path) => [path, read(path)]))
}

/** Checks that the key file lists the key of each holder, and that each volume has only the keys of its container. */
function expectKeys(): void {
  for (const [id, file] of Object.entries(KEYS))
    expect(entry(id)?.sha256, id).toBe(digest(read(`service-secrets/${file}`)))
  const held = (volume: string): string[] =>
    readdirSync(at(volume))
      .filter((name) => name.endsWith('_key'))
      .toSorted()
  expect(held('cli-secrets')).toEqual(['application_key', 'operator_key'])
  expect(held('console-secrets')).toEqual(['console_key'])
  expect(held('demo-api-secrets')).toEqual(['demo_api_key'])
  expect(held('doctor-secrets')).toEqual(['operator_key'])
  expect(held('sandbox-provider-secrets')).toEqual([])
  for (const service of ['token-service', 'accounting-gateway', 'coordinator'])
    expect(held(`${service}-secrets`)).toEqual(['service_api_key'])
}

describe.skipIf(process.getuid?.() !== 0)('the keys that init creates', () => {
  it('init creates the keys of applications, operators and the demo API, and does not change them at a second start', async () => {
    expect((await init()).code).toBe(0)
    expectKeys()
    expect(entry('application')?.scopes).not.toContain('custody:transfer')
    expect(entry('demo-api')).toMatchObject({ realms: [], processes: ['OrderProcess'] })
    const before = contents()
    expect(await init()).toMatchObject({ code: 0, stdout: '', stderr: '' })
    expect(contents()).toEqual(before)
  })

  it('init keeps the service key, the passwords and the other secrets of an installation that has no key file', async () => {
    const old: Readonly<Record<string, string>> = {
      'service-secrets/service_api_key': randomBytes(32).toString('base64url'),
      'service-secrets/credential_keys': `k1:${randomBytes(32).toString('base64')}`,
      'service-secrets/redis_password_token-service': randomBytes(32).toString('base64url'),
      'postgres-secrets/password': randomBytes(32).toString('base64url'),
    }
    for (const [path, content] of Object.entries(old)) writeFileSync(at(path), content)
    for (const volume of ['redis-data', 'postgres-data']) writeFileSync(at(`${volume}/data`), '')
    // In an installation without a key file, the demo API used the service key.
    writeFileSync(
      at('demo-api-secrets/service_api_key'),
      old['service-secrets/service_api_key'] ?? '',
    )
    expect((await init()).code).toBe(0)
    expectKeys()
    for (const [path, content] of Object.entries(old)) expect(read(path)).toBe(content)
    expect(listed().map(({ sha256 }) => sha256)).not.toContain(
      digest(old['service-secrets/service_api_key'] ?? ''),
    )
  })

  it('the next start creates all keys if init is killed after any of its writes', async () => {
    const whole = (await init()).stdout.split('\n').filter(Boolean)
    const first = whole.findIndex((line) => line.includes('service_keys.json'))
    expect(first).toBeGreaterThan(0)
    for (let kept = first - 1; kept < first + 5; kept++) {
      for (const path of Object.keys(contents())) rmSync(at(path))
      // `init` prints a line after each write. This program kills `init` after the line with the number `kept` + 1.
      const program = `
        let lines = 0
        const log = console.log
        console.log = (line) => { log(line); if (++lines > ${kept}) process.kill(process.pid, 'SIGKILL') }
        process.argv[2] = ${JSON.stringify(root)}
        await import(${JSON.stringify(PROGRAM)})`
      const killed = await startProcess(['--input-type=module', '--eval', program, '--', 'x', root])
        .ended
      expect(killed.code).toBeNull()
      expect((await init()).code).toBe(0)
      expectKeys()
    }
  })

  it('init does not list a revoked key again, and creates a new key if the file of a key was removed', async () => {
    await init()
    const keep = listed().filter(({ id }) => id !== 'application')
    writeFileSync(at('service-keys/service_keys.json'), JSON.stringify(keep))
    await init()
    expect(entry('application')).toBeUndefined()
    const before = read('service-secrets/application_key')
    rmSync(at('service-secrets/application_key'))
    await init()
    expect(read('service-secrets/application_key')).not.toBe(before)
    expectKeys()
  })

  it('init keeps the keys that operators created, and lists its own keys again if the key file was removed', async () => {
    await init()
    const erp = { ...entry('operator'), id: 'erp', sha256: digest('erp') }
    writeFileSync(at('service-keys/service_keys.json'), JSON.stringify([...listed(), erp]))
    rmSync(at('service-secrets/operator_key'))
    await init()
    expectKeys()
    expect(entry('erp')).toEqual(erp)
    rmSync(at('service-keys/service_keys.json'))
    await init()
    expectKeys()
    expect(entry('erp')).toBeUndefined()
  })

  it('init reports every fault of an invalid key file, and changes nothing', async () => {
    await init()
    writeFileSync(at('service-keys/service_keys.json'), '[{"id": "a", "scopes": ["root"]}]')
    rmSync(at('service-secrets/operator_key'))
    const { code, stderr } = await init()
    expect(code).toBe(1)
    expect(stderr).toContain('service-keys/service_keys.json is not a valid key file (key 1 (a): ')
    expect(stderr).toContain('scopes.0: must be one of')
    expect(existsSync(at('service-secrets/operator_key'))).toBe(false)
  })
})
