import { defineProcess, z } from 'integration-host'
import { type KillPoint, startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const MAIL = 'https://mail.test'

/** Sends a message. `confirm` queries the mail service to find out whether the message was sent. */
const notices = defineProcess('Notices', { input: z.object({ text: z.string() }) })
  .step('prepare', (step) => step.complete(step.initialData.text))
  .step(
    'send',
    (step) =>
      step.execute({ url: `${MAIL}/messages`, method: 'POST', body: { text: step.previous.data } }),
    {
      async confirm(step) {
        const sent = await step.find({ url: `${MAIL}/messages/${step.transactionId}` })
        return sent === null ? 'not_done' : step.complete()
      },
    },
  )

/**
 * Runs the process with a worker that dies at the given point. If `step` is given, the worker dies only in this step.
 * The fake mail service responds with 200 to a query only if it has received a message.
 */
async function runWithDeath(point: KillPoint, step?: string) {
  const host = await startTestHost({ processes: notices })
  const mail = host.target(MAIL).on('POST /messages', { status: 202 })
  mail.on('GET /messages/:id', () => ({
    status: mail.calls.some(({ method }) => method === 'POST') ? 200 : 404,
  }))
  host.kill(point, step)
  const run = await host.run(notices, 'n-1', { text: 'hello' })
  return { host, mail, run, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
}

const methods = (calls: readonly { readonly method: string }[]): string[] =>
  calls.map(({ method }) => method)

describe('the death of a worker in a test host', () => {
  it.each([
    ['before request', ['GET', 'POST']],
    ['after request', ['POST', 'GET']],
    ['before commit', ['POST', 'GET']],
  ] as const)(
    'if the worker dies at the point "%s", `confirm` decides after the end of the lease whether the step runs again',
    async (point, expected) => {
      await using fixture = await runWithDeath(point, 'send')
      expect([fixture.run.status, fixture.run.step]).toEqual(['Running', 'send'])
      await fixture.host.advance('29 seconds')
      fixture.run.toHaveStatus('Running')
      await fixture.host.advance('2 minutes')
      fixture.run.toHaveStatus('Completed')
      expect(methods(fixture.mail.calls)).toEqual(expected)
      fixture.mail.toHaveCalled('POST /messages', { times: 1, key: fixture.run.key('send') })
      expect(fixture.run.view.Attempts.map(({ StepName, Outcome }) => [StepName, Outcome])).toEqual(
        [
          ['prepare', 'completed'],
          ['send', 'in_doubt'],
          ['send', 'completed'],
        ],
      )
    },
  )

  it('if the worker dies at the point "after commit", the next step starts without a message, and no step runs twice', async () => {
    await using fixture = await runWithDeath('after commit', 'prepare')
    await fixture.host.advance('2 minutes')
    fixture.run.toHaveStatus('Completed')
    expect(methods(fixture.mail.calls)).toEqual(['POST'])
    expect(fixture.run.view.Attempts).toHaveLength(2)
  })

  it('kill() without the name of a step kills the worker at the next step that reaches the point, and only once', async () => {
    await using fixture = await runWithDeath('before commit')
    expect(fixture.run.step).toBe('prepare')
    await fixture.host.advance('2 minutes')
    fixture.run.toHaveStatus('Completed')
    expect(methods(fixture.mail.calls)).toEqual(['POST'])
  })

  it('a run fails if its step kills the worker in every attempt', async () => {
    await using host = await startTestHost({ processes: notices })
    host.target(MAIL).on('GET /messages/:id', { status: 404 })
    host.kill('before request', 'send')
    const run = await host.run(notices, 'n-1', { text: 'hello' })
    let waited = 0
    for (let attempt = 2; attempt <= 10; attempt += 1) {
      host.kill('before request', 'send')
      const before = host.now.getTime()
      while (run.view.Attempt < attempt) await host.advance('30 seconds')
      const waitedNow = host.now.getTime() - before
      if (waitedNow < 900_000) expect(waitedNow).toBeGreaterThanOrEqual(waited)
      waited = waitedNow
      expect(run.errorClass).toBe('worker_lost')
    }
    await host.advance('1 hour')
    expect([run.status, run.errorClass]).toEqual(['Failed', 'attempts_used_up'])
  })

  it('kill() distinguishes the steps of an inline process by their names', async () => {
    const inline = defineProcess('Inline', { dispatch: 'inline' })
      .step('one', (step) => step.complete(1))
      .step('two', (step) => step.execute({ url: `${MAIL}/messages`, method: 'POST' }))
    await using host = await startTestHost({ processes: inline })
    const mail = host.target(MAIL).on('POST /messages', { status: 202 })
    host.kill('after request', 'two')
    const run = await host.run(inline, 'i-1')
    expect(run.step).toBe('two')
    await host.advance('2 minutes')
    run.toHaveStatus('Completed')
    mail.toHaveCalled('POST /messages', { times: 2, key: run.key('two') })
  })

  it('another worker continues all steps of a killed worker when their leases have expired', async () => {
    await using host = await startTestHost({ processes: notices })
    const mail = host
      .target(MAIL)
      .on('POST /messages', ['no response', { status: 202 }])
      .on('GET /messages/:id', { status: 404 })
    const first = await host.run(notices, 'n-1', { text: 'one' })
    host.kill('before request', 'send')
    const second = await host.run(notices, 'n-2', { text: 'two' })
    expect([first.status, second.status]).toEqual(['Running', 'Running'])
    await host.advance('2 minutes')
    expect([first.status, second.status]).toEqual(['Completed', 'Completed'])
    mail.toHaveCalled('POST /messages', { times: 2, key: first.key('send') })
    mail.toHaveCalled('POST /messages', { times: 1, key: second.key('send') })
  })

  it('kill() rejects a point that does not exist, and lists the existing points', async () => {
    await using host = await startTestHost({ processes: notices })
    expect(() => host.kill('after lunch' as KillPoint)).toThrow(
      'use before request, after request, before commit, after commit',
    )
  })
})
