import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, problem, startFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const LOCAL = 'http://127.0.0.1'

describe('the arguments of the command `chaos`', () => {
  it.each([
    [[], '--against ADDRESSES is needed'],
    [['--against', 'ftp://host'], '--against: an address must be an http(s) URL'],
    [['--against', 'http://host:7216'], 'so it has no port and no path'],
    [['--against', 'http://host/api'], 'so it has no port and no path'],
    [['--against', 'redis=http://host'], "--against: there is no service 'redis'"],
    [
      ['--against', 'demo-api=http://a,token-service=http://b,coordinator=http://c'],
      '--against: accounting-gateway=URL is missing',
    ],
    [['--against', 'demo-api=http://user:hidden@a'], 'must have no credentials, query or fragment'],
    [['--against', LOCAL, '--minutes', '0'], '--minutes must be a number above 0'],
    [['--against', LOCAL, '--minutes', 'x'], '--minutes must be a number above 0'],
    [['--against', LOCAL, '--minutes', '1441'], '--minutes must be a number above 0'],
    [['--against', LOCAL, '--seed', '-1'], "Option '--seed'"],
    [['--against', LOCAL, '--seed', 'x'], '--seed must be a whole number'],
    [['--against', LOCAL, '--companies', '0'], '--companies must be 1 to 500'],
    [['--against', LOCAL, '--url', LOCAL], 'chaos calls several services'],
    [['--against', LOCAL, 'more'], "Unexpected argument 'more'"],
  ])('the command chaos rejects the arguments %j with exit code 2', async (args, message) => {
    const { code, out, err } = await run(['chaos', ...args])
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toContain(message)
    expect(err).not.toContain('hidden')
  })
})

describe('installations that the command `chaos` does not test', () => {
  let service: FakeService
  let consent: string
  beforeEach(async () => {
    service = await startFakeService(
      {
        'GET /authorize': () => ({ status: 302, headers: { Location: consent } }),
        'GET /sandbox/settings': () => problem(404, 'not_found'),
      },
      null,
    )
    consent = `${service.url}/connect`
  })
  afterEach(() => service[Symbol.asyncDispose]())
  const against = (url: string): string =>
    ['demo-api', 'token-service', 'accounting-gateway', 'coordinator']
      .map((name) => `${name}=${url}`)
      .join(',')

  it('`chaos` changes nothing and exits with code 2 if the provider is not the sandbox', async () => {
    const { code, err } = await run(['chaos', '--against', against(service.url)])
    expect(code).toBe(2)
    expect(err).toContain('does not use the sandbox provider')
    expect(service.requests.map(({ route }) => route)).toEqual([
      'GET /authorize',
      'GET /sandbox/settings',
    ])
  })

  it('`chaos` exits with code 5 if token-service cannot be reached to start an authorization', async () => {
    const { code, err } = await run(['chaos', '--against', against('http://127.0.0.1:9')])
    expect(code).toBe(5)
    expect(err).toContain('token-service at http://127.0.0.1:9 starts no authorization')
  })
})
