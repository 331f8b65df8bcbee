import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, problem, startFakeService } from '../../test-support/fake-service.ts'
import { run, type Surroundings } from '../../test-support/run.ts'

// A whole system is what tests/flows/cli-doctor.test.ts runs it against.
const document = {
  issuer: 'https://provider.example',
  authorization_endpoint: 'https://provider.example/authorize',
  token_endpoint: 'https://provider.example/token',
}
let provider: FakeService
let answer: { status?: number; body?: unknown; headers?: Record<string, string> }
beforeEach(async () => {
  answer = { body: document }
  provider = await startFakeService({ 'GET /discovery': () => answer }, null)
})
afterEach(() => provider[Symbol.asyncDispose]())

const doctor = (args: readonly string[] = [], { env, ...rest }: Surroundings = {}) =>
  run(['doctor', '--only', 'provider', ...args], {
    env: { DISCOVERY_URL: `${provider.url}/discovery`, ...env },
    ...rest,
  })

describe('doctor', () => {
  it('is a table of what it looked at, and 0 when nothing is wrong', async () => {
    const { code, out, err } = await doctor()
    expect([code, err]).toEqual([0, 'Nothing is wrong.\n'])
    expect(out.split('\n').map((line) => line.split(/ {2,}/).slice(0, 3))).toEqual([
      ['VERDICT', 'SUBJECT', 'CHECK'],
      ['ok', 'provider', 'connection'],
      ['ok', 'provider', 'discovery'],
      ['ok', 'provider', 'clock'],
      [''],
    ])
  })

  it.each([
    [problem(404, 'not_found'), 'status 404'],
    [{ body: '<html>' }, 'is not JSON'],
    [{ body: { ...document, token_endpoint: 'nowhere' } }, 'no usable token_endpoint'],
  ])('says what is wrong and what to do, and ends with 1: %j', async (bad, found) => {
    answer = bad
    const { code, out, err } = await doctor()
    expect([code, err]).toEqual([1, '1 problem, 0 warnings.\n'])
    expect(out).toMatch(
      new RegExp(`^problem +provider +discovery +${found}\n +→ Is DISCOVERY_URL`, 'm'),
    )
  })

  it('takes a clock that is minutes off for a problem, one that is seconds off for a warning', async () => {
    const ahead = (seconds: number) => new Date(Date.now() + seconds * 1_000).toUTCString()
    answer = { body: document, headers: { Date: ahead(300) } }
    expect(await doctor(['--json'])).toMatchObject({ code: 1, err: '1 problem, 0 warnings.\n' })
    answer = { body: document, headers: { Date: ahead(10) } }
    expect(await doctor(['--json'])).toMatchObject({ code: 0, err: '0 problems, 1 warning.\n' })
    expect((await doctor(['--strict'])).code).toBe(1)
  })

  it('is a finding on each line with --json', async () => {
    answer = { status: 500 }
    const { json } = await doctor(['--json'])
    expect(json[1]).toEqual({
      Subject: 'provider',
      Check: 'discovery',
      Verdict: 'problem',
      Found: 'status 500',
      Mend: 'Is DISCOVERY_URL the address of the OpenID discovery document?',
    })
  })

  it('is coloured on a terminal only, and not where nobody wants colours', async () => {
    const typed: string[] = []
    expect((await doctor([], { typed })).out).toContain('\u001b[32mok\u001b[0m')
    expect((await doctor([], { typed, env: { NO_COLOR: '1' } })).out).not.toContain('\u001b')
    expect((await doctor()).out).not.toContain('\u001b')
  })

  it('tells what it did not look at, because a setting is missing', async () => {
    const { code, json, err } = await run(['doctor', '--only', 'redis,postgres,rabbitmq', '--json'])
    expect([code, err]).toEqual([0, 'Nothing is wrong, 3 not looked at.\n'])
    expect(json).toMatchObject(
      ['REDIS_URL', 'DATABASE_URL', 'AMQP_URL'].map((name) => ({
        Verdict: 'skipped',
        Found: `${name} is not set`,
      })),
    )
  })

  it('names settings that are not usable, without their values', async () => {
    const env = { REDIS_URL: 'http://user:secret@x', AMQP_URL: 'nonsense' }
    const { code, err } = await doctor([], { env })
    expect(code).toBe(2)
    expect(err).toMatch(/REDIS_URL: must be a URL like .*\n.*AMQP_URL: must be/)
    expect(err).not.toMatch(/secret|nonsense/)
  })

  it('says of an address where something else answers that it is wrong', async () => {
    const env = { DEMO_API_URL: provider.url }
    const { code, out } = await run(['doctor', '--only', 'demo-api'], { env })
    expect([code, out]).toEqual([1, expect.stringContaining('not as demo-api answers')])
    expect(out).toContain('DEMO_API_URL')
  })
})
