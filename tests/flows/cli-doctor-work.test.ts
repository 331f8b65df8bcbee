import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { tokenServiceClient } from '../support/clients/token-service.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import { parseJsonLines, runCli } from '../support/processes/cli.ts'
import { startSystem, type System } from '../support/system.ts'

interface CheckResult {
  readonly Subject: string
  readonly Check: string
  readonly Verdict: 'ok' | 'warning' | 'problem' | 'skipped'
  readonly Found: string
  readonly Mend: string | null
}

describe('the doctor command while work is not completed', () => {
  let system: System
  beforeAll(async () => {
    system = await startSystem()
    for (const realm of ['1', '2']) await connectCompany(system, realm)
  })
  afterAll(() => system[Symbol.asyncDispose]())

  const cli = (...args: string[]) =>
    runCli(args, {
      env: {
        TOKEN_SERVICE_URL: system.url('token-service'),
        COORDINATOR_URL: system.url('coordinator'),
        SERVICE_API_KEY: system.serviceKey,
      },
    })
  /** Runs doctor for one service. Returns the results that are not `ok`, except for clock differences. */
  async function doctor(only: 'token-service' | 'coordinator') {
    const { code, stdout } = await cli('doctor', '--json', '--only', only)
    const results = parseJsonLines<CheckResult>(stdout)
    return {
      code,
      results: results.filter(({ Verdict, Check }) => Verdict !== 'ok' && Check !== 'disk'),
    }
  }
  it('doctor exits with 0 while all work is completed', async () => {
    expect(await doctor('token-service')).toEqual({ code: 0, results: [] })
  })

  it('doctor reports a problem if a faulted company has to be connected again or cannot be refreshed', async () => {
    await sandboxClient(system).revoke('1')
    expect((await tokenServiceClient(system).refresh('1', {})).status).toBe(424)
    const { code, results } = await doctor('token-service')
    expect([code, results]).toMatchObject([
      1,
      [
        {
          Check: 'companies',
          Verdict: 'problem',
          Found: expect.stringMatching(/^1 of 2 .*\(\w+ 1\): ACC-1$/),
          Mend: expect.stringContaining('credentials show ACC-1'),
        },
      ],
    ])
    expect((await connectCompany(system, '1')).status).toBe(302)
    expect(await doctor('token-service')).toEqual({ code: 0, results: [] })
  })

  it('doctor warns if refreshes fail because the token endpoint fails', async () => {
    const sandbox = sandboxClient(system)
    await sandbox.addFault({ target: 'token', status: 500, calls: 2 })
    expect((await tokenServiceClient(system).refresh('2', {})).status).toBe(503)
    await sandbox.clearFaults()
    expect((await doctor('token-service')).results).toMatchObject([
      {
        Check: expect.stringMatching(/^(refreshes|companies)$/),
        Found: expect.stringContaining('ACC-2'),
      },
    ])
  })

  it('doctor reports a problem if the provider rejects the client, and `credentials refresh` prints a code of its own', async () => {
    await system.service('token-service').stop('SIGTERM')
    system.start('token-service', { CLIENT_SECRET: 'a-wrong-secret' })
    await system.ready('token-service')
    const refresh = await cli('credentials', 'refresh', 'ACC-1')
    expect(refresh).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('(provider_client_rejected)'),
    })
    const { code, results } = await doctor('token-service')
    expect(code).toBe(1)
    expect(results).toContainEqual({
      Subject: 'token-service',
      Check: 'provider-client',
      Verdict: 'problem',
      Found: expect.stringMatching(/^since .*: the provider rejects CLIENT_ID and CLIENT_SECRET$/),
      Mend: expect.stringContaining('CLIENT_SECRET to new,old'),
    })
  })
})
