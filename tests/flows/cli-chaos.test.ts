import { startProcess } from '@integration-host/shared/test-support/start-process'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { CLI, parseJsonLines, runCli } from '../support/processes/cli.ts'
import { startSystem, type System } from '../support/system.ts'

/** The arguments of the command for one round that takes three seconds. */
const SHORT = ['--minutes', '0.05', '--companies', '3', '--seed', '7', '--json']

describe('the chaos command against a running system', () => {
  let system: System
  beforeAll(async () => {
    system = await startSystem()
  })
  afterAll(() => system[Symbol.asyncDispose]())

  const against = (): string =>
    (['demo-api', 'token-service', 'accounting-gateway', 'coordinator'] as const)
      .map((name) => `${name}=${system.url(name)}`)
      .join(',')
  async function chaos(...args: readonly string[]) {
    const result = await runCli(['chaos', '--against', against(), ...SHORT, ...args], {
      cwd: system.dataDir,
      env: { SERVICE_API_KEY: system.serviceKey },
    })
    expect(result.stdout + result.stderr).not.toContain(system.serviceKey)
    return { ...result, rounds: parseJsonLines(result.stdout) }
  }
  const credentials = async (): Promise<readonly unknown[]> => {
    const response = await system.call(`${system.url('token-service')}/credentials`)
    return ((await response.json()) as { items: unknown[] }).items
  }
  const settings = async (): Promise<unknown> =>
    (await fetch(`${system.url('sandbox-provider')}/sandbox/settings`)).json()

  it('the chaos command reports no loss without a fault, restores the sandbox settings and removes its companies', async () => {
    const before = await settings()
    const { code, stderr, rounds } = await chaos()
    expect(rounds).toMatchObject([{ Round: '1', Verdict: 'kept', Lost: [], LockedOut: [] }])
    expect(rounds[0]?.['Orders']).toBeGreaterThan(0)
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('Seed 7.') })
    expect(await settings()).toEqual(before)
    expect(await credentials()).toEqual([])
  })

  it('the chaos command reports the companies that are locked out after its --kill-command has deleted all grants', async () => {
    const reset = `node -e "fetch('${system.url('sandbox-provider')}/sandbox/reset', { method: 'POST', headers: { 'Content-Type': 'application/json' } }).then((r) => console.log('reset', r.status))"`
    const { code, stderr, rounds } = await chaos('--kill-command', reset)
    expect(code).toBe(1)
    expect(stderr).toContain('reset 204')
    expect(rounds).toMatchObject([{ Verdict: 'broken', Lost: [], Stuck: [] }])
    // A company that the load had connected before the reset is locked out, too.
    expect(rounds[0]?.['LockedOut']).toEqual(
      expect.arrayContaining([0, 1, 2].map((n) => expect.stringMatching(`^chaos-[^-]+-${n}-1$`))),
    )
  })

  it('the chaos command restores the settings of the sandbox and removes its companies when it is stopped', async () => {
    const before = await settings()
    const started = startProcess([CLI, 'chaos', '--against', against(), '--companies', '2'], {
      env: { SERVICE_API_KEY: system.serviceKey },
    })
    await eventually(async () => expect((await credentials()).length).toBeGreaterThanOrEqual(2))
    expect(await started.stop('SIGTERM')).toBe(143)
    expect(await settings()).toEqual(before)
    expect(await credentials()).toEqual([])
  })

  it('the chaos command reports a `--kill-command` that fails', async () => {
    const { code, rounds } = await chaos('--kill-command', 'exit 3')
    expect(code).toBe(1)
    expect(rounds).toMatchObject([
      { Verdict: 'broken', Error: 'the kill command exited with code 3', Lost: [] },
    ])
  })
})
