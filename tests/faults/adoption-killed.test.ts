/**
 * Kills token-service and the command line with SIGKILL while they adopt the grants of another program. All processes
 * are real. The provider rotates the refresh token at every refresh, and ends a grant if a rotated token is used again.
 */
import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { GrantResult } from '@integration-host/shared/contracts/custody'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { foreignGrant } from '../support/clients/foreign-program.ts'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { tokenServiceClient } from '../support/clients/token-service.ts'
import { CLI, parseJsonLines, runCli } from '../support/processes/cli.ts'
import { diedAt, tokenServiceWithFailpoints } from '../support/processes/failpoints.ts'
import { startSystem, type System } from '../support/system.ts'

const GRANTS = 500
/** How many grants one process adopts at the same time. */
const IN_FLIGHT = 4
const clientSecret = randomBytes(24).toString('base64url')
const env = { CLIENT_SECRET: clientSecret }

describe('the adoption of grants of another program', () => {
  let system: System
  let realms = 9_341_470_000
  const stop = () => system.service('token-service').stop('SIGTERM')

  beforeAll(async () => {
    system = await startSystem([], { personality: 'strict' })
    system.start('sandbox-provider', env)
    await system.ready('sandbox-provider')
  })
  afterAll(() => system[Symbol.asyncDispose]())

  async function start(more: Readonly<Record<string, string>> = {}): Promise<void> {
    const entry = more['DIES_AT'] === undefined ? undefined : tokenServiceWithFailpoints
    system.start('token-service', { ...env, ...more }, entry)
    await system.ready('token-service')
  }

  interface Grants {
    readonly file: string
    readonly realms: readonly string[]
    readonly tokens: readonly string[]
  }

  async function foreignGrants(count: number): Promise<Grants> {
    const first = realms
    realms += count
    const all = Array.from({ length: count }, (_, n) => String(first + n))
    const tokens = await inParallel(
      all,
      async (realm) => (await foreignGrant(system, realm, clientSecret)).token,
    )
    const file = join(system.dataDir, `grants-${first}.ndjson`)
    const lines = all.map((Realm, n) => JSON.stringify({ Realm, RefreshToken: tokens[n] }))
    await writeFile(file, lines.join('\n'), { mode: 0o600 })
    return { file, realms: all, tokens }
  }

  const command = (file: string) => ['credentials', 'adopt', '--file', file, '--yes', '--json']
  const settings = () => ({
    cwd: system.dataDir,
    env: { SERVICE_API_KEY: system.serviceKey, TOKEN_SERVICE_URL: system.url('token-service') },
  })

  function expectNoToken({ tokens }: Grants, output: string): void {
    expect(tokens.filter((token) => output.includes(token))).toEqual([])
  }

  const withOutcome = (
    results: readonly GrantResult[],
    ...outcomes: readonly GrantResult['Outcome'][]
  ): string[] =>
    results
      .filter(({ Outcome }) => outcomes.includes(Outcome))
      .map(({ Name }) => Name?.slice('ACC-'.length) ?? '')

  /**
   * Refreshes each company, which proves that its newest refresh token is stored. Resolves with the realms whose
   * refresh failed.
   */
  const notRefreshable = async (all: readonly string[]): Promise<string[]> => {
    const client = tokenServiceClient(system)
    const statuses = await inParallel(
      all,
      async (realm) => (await client.refresh(realm, {})).status,
    )
    return all.filter((_, n) => statuses[n] !== 200)
  }

  it(`an adoption of ${GRANTS} grants reports an outcome for every line of its file although token-service is killed meanwhile`, async () => {
    const grants = await foreignGrants(GRANTS)
    const DIES_FOR = `ACC-${grants.realms[GRANTS / 2]}`
    await start({ DIES_AT: 'after response', DIES_FOR })
    const killed = system.service('token-service')
    const adopting = startProcess([CLI, ...command(grants.file)], settings())
    await diedAt(killed, 'after response')
    await start()
    const { code, stdout, stderr } = await adopting.ended
    expectNoToken(grants, stdout + stderr)
    const results = parseJsonLines<GrantResult>(stdout)

    // The command reports exactly one outcome for each line.
    expect(results.map(({ Line }) => Line).toSorted((a, b) => a - b)).toEqual(
      grants.realms.map((_, n) => n + 1),
    )
    const here = withOutcome(results, 'stored', 'already_here')
    const refused = withOutcome(results, 'refused')
    expect([...here, ...refused].toSorted()).toEqual(grants.realms)
    // The killed process had the only copy of the token pairs in the responses that it had received.
    expect(refused).toContain(grants.realms[GRANTS / 2])
    expect(refused.length).toBeLessThanOrEqual(IN_FLIGHT)
    expect(results.filter(({ Outcome }) => Outcome === 'refused').map(({ Code }) => Code)).toEqual(
      refused.map(() => 'rotation_lost'),
    )
    expect(code).toBe(1)

    // The command runs again with the same file. For grants that are already stored, it sends no token to the
    // provider. For lines that were refused in the first run, it reports `refused` again.
    const calls = async () => {
      const all = await sandboxClient(system).allCalls()
      return here.map((realm) => all.get(realm))
    }
    const before = await calls()
    const again = await runCli(command(grants.file), settings())
    const repeated = parseJsonLines<GrantResult>(again.stdout)
    expect(withOutcome(repeated, 'already_here').toSorted()).toEqual(here.toSorted())
    expect(withOutcome(repeated, 'refused').toSorted()).toEqual(refused.toSorted())
    expect(await calls()).toEqual(before)
    expect(before.every((one) => one?.granted === 1 && one.reused === 0)).toBe(true)

    expect(await notRefreshable(here)).toEqual([])
    const client = tokenServiceClient(system)
    for (const realm of refused) expect((await client.credential(realm)).status).toBe(404)
    console.log(
      `${GRANTS} grants, one kill: ${here.length} stored and refreshed again, ${refused.length} named (rotation_lost), 0 lost`,
    )
    await stop()
  }, 600_000)

  it('no grant is lost if the command is killed during an adoption and the user then runs the command again', async () => {
    const grants = await foreignGrants(120)
    await start()
    await using adopting = startProcess([CLI, ...command(grants.file)], settings())
    // The command is killed while its second or third request is in flight.
    await adopting.waitForOutput(/"Line":50,/)
    await adopting.stop('SIGKILL')
    const { code, stdout } = await runCli(command(grants.file), settings())
    const results = parseJsonLines<GrantResult>(stdout)
    expect(code, stdout).toBe(0)
    expect(withOutcome(results, 'stored', 'already_here').toSorted()).toEqual(grants.realms)
    expect(withOutcome(results, 'already_here').length).toBeGreaterThanOrEqual(50)
    expect(await notRefreshable(grants.realms)).toEqual([])
    await stop()
  }, 300_000)

  it.each(['after intent', 'after response', 'before commit', 'after commit'])(
    'no grant is lost during an adoption if token-service is killed at "%s" and the provider has a grace period',
    async (point) => {
      await sandboxClient(system).set({ graceSeconds: 600 })
      const grants = await foreignGrants(10)
      await start({ DIES_AT: point, DIES_FOR: `ACC-${grants.realms[5]}` })
      const killed = system.service('token-service')
      const adopting = startProcess([CLI, ...command(grants.file)], settings())
      await diedAt(killed, point)
      await start()
      const { code, stdout, stderr } = await adopting.ended
      expectNoToken(grants, stdout + stderr)
      const results = parseJsonLines<GrantResult>(stdout)
      expect(code, stdout).toBe(0)
      expect(withOutcome(results, 'stored', 'already_here').toSorted()).toEqual(grants.realms)
      expect(await notRefreshable(grants.realms)).toEqual([])
      await stop()
    },
    300_000,
  )
})

/** Calls `work` for each value, with 16 calls at a time. Resolves with the results in order. */
async function inParallel<T, R>(
  values: readonly T[],
  work: (value: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = []
  let next = 0
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      for (let index = next++; index < values.length; index = next++)
        results[index] = await work(values[index] as T)
    }),
  )
  return results
}
