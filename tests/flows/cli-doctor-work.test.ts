import { connect } from 'amqplib'
import { eventually } from '@integration-host/shared/test-support/eventually'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { tokenServiceClient } from '../support/clients/token-service.ts'
import { connectCompany, waitForRun } from '../support/clients/user-actions.ts'
import { parseJsonLines, runCli } from '../support/processes/cli.ts'
import { backend, startSystem, type System } from '../support/system.ts'

interface CheckResult {
  readonly Subject: string
  readonly Check: string
  readonly Verdict: 'ok' | 'warning' | 'problem' | 'skipped'
  readonly Found: string
  readonly Mend: string | null
}

describe('the doctor command while runs are unfinished or credentials are faulted', () => {
  let system: System
  let sql: postgres.Sql
  beforeAll(async () => {
    system = await startSystem()
    for (const realm of ['1', '2']) await connectCompany(system, realm)
    sql = postgres(system.databaseUrl, { max: 1, onnotice: () => {} })
  })
  afterAll(async () => {
    await sql.end()
    await system[Symbol.asyncDispose]()
  })

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
  /** Inserts a run into the database, as another program or an earlier release could. */
  const insert = (id: string, row: Readonly<Record<string, string | boolean | null>>) =>
    sql`insert into "Order_Header" ${sql({ Process: 'OrderProcess', TransactionID: id, InitialData: id, StepName: 'order', ...row })}`

  /** What `doctor` returns if this is the only problem. */
  const problem = (Check: string, Found: unknown, mend: string) => ({
    code: 1,
    results: [{ Check, Verdict: 'problem', Found, Mend: expect.stringContaining(mend) }],
  })

  it('doctor exits with 0 while all work is completed', async () => {
    for (const service of ['coordinator', 'token-service'] as const)
      expect(await doctor(service)).toEqual({ code: 0, results: [] })
  })

  it('doctor reports a run that has failed in the last day, with its error class or the code of the provider, and its step', async () => {
    // The run fails immediately, because its row names the last step although no earlier step has run.
    await insert('f1', { StepName: 'csv' })
    await waitForRun(system, 'f1', 0, 'Failed')
    expect(await doctor('coordinator')).toMatchObject(
      problem(
        'failed runs',
        '1 in the last day: 1 × step_before_missing at OrderProcess csv',
        'transactions show f1 --process OrderProcess',
      ),
    )
    await sql`update "Order_Header" set "ErrorClass" = 'http_400',
      "LastError" = '6240 Duplicate Name: taken (POST x responded with 400)' where "TransactionID" = 'f1'`
    expect((await doctor('coordinator')).results).toMatchObject([
      { Found: '1 in the last day: 1 × 6240 Duplicate Name at OrderProcess csv' },
    ])
    await sql`update "Order_Header" set "CompletedAt" = now() - interval '25 hours',
      "UpdatedAt" = now() - interval '25 hours' where "TransactionID" = 'f1'`
    expect(await doctor('coordinator')).toEqual({ code: 0, results: [] })
  })

  it('doctor reports the credential for which runs wait, and does not report runs that wait for a slot of their process', async () => {
    for (const [id, name] of [
      ['w1', 'ACC-77'],
      ['w2', 'ACC-77'],
      ['w3', 'concurrency'],
    ] as const)
      await insert(id, {
        Status: 'Waiting',
        WaitingFor: name,
        NextAttemptAt: new Date(Date.now() + 3_600_000).toISOString(),
        NextSweepAt: new Date(Date.now() + 3_600_000).toISOString(),
      })
    expect(await doctor('coordinator')).toMatchObject(
      problem('waiting runs', '2 for a credential: 2 × ACC-77', 'credentials show ACC-77'),
    )
    await sql`delete from "Order_Header" where "Status" = 'Waiting'`
  })

  it('doctor reports a problem if a run has failed with a step in doubt, even if the failure was long ago', async () => {
    const old = new Date(Date.now() - 30 * 86_400_000).toISOString()
    await insert('d1', {
      Status: 'Failed',
      ErrorClass: 'no_answer',
      InDoubt: true,
      NextAttemptAt: null,
      CreatedAt: old,
      UpdatedAt: old,
      CompletedAt: old,
    })
    expect(await doctor('coordinator')).toMatchObject({
      code: 1,
      results: [{ Check: 'in doubt', Verdict: 'problem', Found: expect.stringMatching(/^1 /) }],
    })
    await sql`delete from "Order_Header" where "TransactionID" = 'd1'`
  })

  it('if the process of a run is not loaded, doctor reports a problem that names the process', async () => {
    await insert('o1', { Process: 'GoneProcess' })
    expect(await doctor('coordinator')).toMatchObject(
      problem(
        'not loaded',
        'GoneProcess: 1 unfinished run of this process, which is not loaded',
        'transactions list --process GoneProcess',
      ),
    )
    await sql`delete from "Order_Header" where "TransactionID" = 'o1'`
  })

  it('doctor reports a problem if a faulted company has to be connected again or cannot be refreshed', async () => {
    await sandboxClient(system).revoke('1')
    expect((await tokenServiceClient(system).refresh('1', {})).status).toBe(424)
    expect(await doctor('token-service')).toMatchObject(
      problem(
        'companies',
        expect.stringMatching(/^1 of 2 .*\(\w+ 1\): ACC-1$/),
        'credentials show ACC-1',
      ),
    )
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

  it('doctor reports that the provider rejects the client, and `credentials refresh` prints provider_client_rejected', async () => {
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

  it('doctor reports a problem if there are dead letters', async () => {
    const broker = await connect(backend('TEST_AMQP_URL'))
    const channel = await broker.createConfirmChannel()
    channel.sendToQueue(`${system.amqpPrefix}steps.OrderProcess.order`, Buffer.from('unreadable'))
    await channel.waitForConfirms()
    await broker.close()
    await eventually(async () =>
      expect(await doctor('coordinator')).toMatchObject(
        problem('dead letters', 'OrderProcess: 1', 'dead-letters list --process OrderProcess'),
      ),
    )
  })
})
