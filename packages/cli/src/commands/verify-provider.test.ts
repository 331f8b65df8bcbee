import { freePort } from '@integration-host/shared/test-support/free-ports'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeProvider, REALM, startFakeProvider } from '../../test-support/fake-provider.ts'
import { run, type Run, type Surroundings } from '../../test-support/run.ts'
import { CommandFailed } from '../exit-code.ts'

// tests/flows/cli-verify-provider.test.ts runs verify-provider against the sandbox provider. The tests in this file
// cover responses that the sandbox cannot send.
let provider: FakeProvider
let env: Record<string, string>
beforeEach(async () => {
  provider = await startFakeProvider()
  env = {
    DISCOVERY_URL: `${provider.url}/discovery`,
    CLIENT_ID: 'client-id-canary-1',
    CLIENT_SECRET: 'client-secret-canary-1',
    REDIRECT: `http://127.0.0.1:${await freePort()}/callback`,
  }
})
afterEach(() => provider[Symbol.asyncDispose]())

/**
 * Opens the printed authorization URL as a browser would, and calls `visit` with the URL to which the provider
 * redirects.
 */
const browser =
  (visit: (callback: URL) => Promise<unknown> = (callback) => fetch(callback)) =>
  (text: string): void => {
    const address = /^http\S+$/m.exec(text)?.[0]
    if (address === undefined) return
    void fetch(address, { redirect: 'manual' }).then((response) => {
      const callback = response.headers.get('location')
      return callback === null ? null : visit(new URL(callback))
    })
  }

const verify = (args: readonly string[] = ['--yes'], surroundings: Surroundings = {}) =>
  run(['verify-provider', ...args], {
    onErr: browser(),
    ...surroundings,
    env: { ...env, ...surroundings.env },
  })

interface Line {
  readonly Step: string
  readonly Check: string | null
  readonly Verdict: string
  readonly Seen: string
}
const linesOf = ({ json }: Run): readonly Line[] => json as readonly Line[]
const lineOf = (result: Run, step: string, check: string | null = null): string | undefined => {
  const line = linesOf(result).find(({ Step, Check }) => Step === step && Check === check)
  return line && `${line.Verdict}: ${line.Seen}`
}

describe('the command `verify-provider`', () => {
  it.each([[[]], [['--json']]])(
    '`verify-provider` with the arguments %j prints only names and numbers from responses, and no value of a setting',
    async (options) => {
      const { code, out, err } = await verify(['--yes', ...options])
      expect(code).toBe(0)
      expect(out.split('\n').length).toBeGreaterThan(25)
      expect(out).toMatch(/company …889; members: \(a name not shown\), code, realmId, state/)
      // The authorization URL contains the client id, so it is printed on standard error.
      const address = /^http\S+\n/m.exec(err)?.[0] ?? ''
      expect(address).toContain('client-id-canary-1')
      const shown = out + err.replace(address, '')
      expect(provider.canaries.size).toBeGreaterThan(30)
      for (const canary of provider.canaries) expect(shown).not.toContain(canary)
      expect(shown).not.toMatch(/canary/i)
    },
  )

  it('`verify-provider` prints no secret from an error response', async () => {
    const statuses = [400, 401, 403, 429, 500, 302, 204]
    for (const status of statuses) {
      await provider[Symbol.asyncDispose]()
      provider = await startFakeProvider()
      env['DISCOVERY_URL'] = `${provider.url}/discovery`
      const body = {
        error: 'Canary-1',
        fault: { error: [{ code: 'canary-2' }] },
        Customer: 'canary-3',
      }
      const isAfterConsent = ({ grant_type }: Record<string, unknown>): boolean =>
        grant_type === 'refresh_token'
      provider.override('POST /oauth2/v1/tokens/bearer', (request) =>
        isAfterConsent(request.body) ? { status, body: status === 204 ? '' : body } : undefined,
      )
      for (const route of [
        'POST /v2/oauth2/tokens/revoke',
        apiRoute('query'),
        apiRoute('customer'),
      ])
        provider.override(route, () => ({ status, body: status === 204 ? '' : body }))
      const { code, out, err } = await verify()
      expect(code).toBe(1)
      const shown = out + err.replace(/^http\S+\n/m, '')
      for (const canary of provider.canaries) expect(shown).not.toContain(canary)
      expect(shown).not.toMatch(/canary/i)
    }
  })

  it('`verify-provider` names every invalid setting in one message that shows no values', async () => {
    const { code, out, err } = await verify([], {
      env: {
        DISCOVERY_URL: 'canary',
        CLIENT_ID: '',
        CLIENT_SECRET: '',
        REDIRECT: 'http://localhost/x?canary',
        PROVIDER_PROFILE: 'canary',
        ACCOUNTING_URL: 'canary',
      },
    })
    expect([code, out]).toEqual([2, ''])
    for (const name of [
      'DISCOVERY_URL: must be',
      'CLIENT_ID: is missing',
      'CLIENT_SECRET: is missing',
      'REDIRECT: must have no query',
      'PROVIDER_PROFILE: ',
      'ACCOUNTING_URL: must be',
    ])
      expect(err).toContain(name)
    expect(err).not.toContain('canary')
    expect(provider.requests).toEqual([])
  })

  it('`verify-provider` rejects the production address in ACCOUNTING_URL before any request', async () => {
    for (const ACCOUNTING_URL of [
      'https://quickbooks.api.intuit.com',
      'https://QuickBooks.api.intuit.com./',
    ]) {
      const { code, out, err } = await verify(['--yes'], { env: { ACCOUNTING_URL } })
      expect([code, out]).toEqual([2, ''])
      expect(err).toContain('--production')
    }
    expect(provider.requests).toEqual([])
  })

  it('`verify-provider` rejects a discovery document with the production accounting address before any other request', async () => {
    const document = (changes: object) => {
      provider.override('GET /discovery', () => ({
        body: {
          issuer: 'https://oauth.platform.intuit.com/op/v1',
          authorization_endpoint: `${provider.url}/connect/oauth2`,
          token_endpoint: `${provider.url}/oauth2/v1/tokens/bearer`,
          ...changes,
        },
      }))
      return verify()
    }
    const userinfo_endpoint = 'https://accounts.platform.intuit.com/v1/openid_connect/userinfo'
    expect(await document({ userinfo_endpoint })).toMatchObject({ code: 2, out: '' })
    expect(await document({ accounting_url: 'https://quickbooks.api.intuit.com' })).toMatchObject({
      code: 2,
      out: '',
    })
    expect(new Set(provider.requests.map(({ route }) => route))).toEqual(
      new Set(['GET /discovery']),
    )
    expect((await verify(['--yes', '--production'])).code).toBe(1)
    expect(provider.requests.map(({ route }) => route)).toContain('POST /oauth2/v1/tokens/bearer')
  })

  it('`verify-provider` skips each step that needs confirmation if there is neither a terminal nor --yes', async () => {
    const result = await verify(['--json'])
    expect(result.code).toBe(0)
    expect(lineOf(result, 'key pair', 'key pair')).toMatch(/^as documented/)
    expect(lineOf(result, 'connect')).toBe('skipped: not confirmed (without a terminal: --yes)')
    expect(lineOf(result, 'query')).toBe('skipped: needs a connected company')
    expect(result.err).not.toContain('connect/oauth2')
  })

  it('`verify-provider` prompts before each step that changes something, and skips the step unless the user enters yes', async () => {
    const typed = ['y', 'no', '', 'n']
    const result = await verify(['--json'], { typed })
    expect(result.err.match(/\[y\/N\] /g)).toHaveLength(4)
    expect(lineOf(result, 'create')).toBe('skipped: not confirmed')
    expect(lineOf(result, 'previous token')).toBe('skipped: not confirmed')
    expect(lineOf(result, 'revocation')).toBe('skipped: not confirmed')
    expect(provider.requests.map(({ route }) => route)).not.toContain(
      'POST /v2/oauth2/tokens/revoke',
    )
    expect(result.err).toContain('The grant of this run still exists. To end it: in QuickBooks')
  })

  it('`verify-provider` leaves the created customer active if the user does not confirm its deactivation', async () => {
    const result = await verify(['--json'], { typed: ['y', 'y', 'n', 'y', 'y'] })
    expect(lineOf(result, 'create', 'make inactive')).toMatch(
      /^skipped: not confirmed: customer 'Integration Host check \w{8}' stays$/,
    )
    expect(result.err).not.toContain('still exists')
  })

  it('`verify-provider` reports an ACCOUNTING_URL that differs from the accounting address of the provider', async () => {
    const result = await verify(['--yes', '--json'], {
      env: { ACCOUNTING_URL: `${provider.url}/elsewhere` },
    })
    expect(lineOf(result, 'discovery', 'accounting address')).toBe(
      `differs: ${provider.url}/elsewhere, from ACCOUNTING_URL; the provider's is ${provider.url}/accounting`,
    )
  })

  it('`verify-provider` listens on 127.0.0.1 and ::1 for a callback to localhost', async () => {
    const result = await verify(['--yes', '--json'], {
      env: { REDIRECT: `http://localhost:${await freePort()}/callback` },
    })
    expect([result.code, lineOf(result, 'connect', 'callback')]).toEqual([
      0,
      expect.stringContaining('company …889'),
    ])
  })

  it('`verify-provider` creates no customer with --no-create', async () => {
    const result = await verify(['--yes', '--json', '--no-create'])
    expect([result.code, lineOf(result, 'create')]).toEqual([0, 'skipped: --no-create'])
    expect(provider.requests.map(({ route }) => route)).not.toContain(apiRoute('customer'))
  })

  it('`verify-provider` requests the creation of a customer twice with one requestid, and the deactivation with another requestid', async () => {
    await verify()
    const [first, second, third, ...more] = provider.requests.filter(
      ({ route }) => route === apiRoute('customer'),
    )
    expect(first?.query.get('requestid')).toMatch(/^[0-9a-f-]{36}$/)
    expect([second?.query, second?.body]).toEqual([first?.query, first?.body])
    expect(third?.query.get('requestid')).not.toBe(first?.query.get('requestid'))
    expect([third?.body, more]).toEqual([
      { Id: '58', SyncToken: '0', sparse: true, Active: false },
      [],
    ])
  })

  it('`verify-provider` fails if the repeated creation returns another customer, and deactivates both customers', async () => {
    let id = 0
    provider.override(apiRoute('customer'), ({ body }) => ({
      body: { Customer: { Id: String(++id), SyncToken: '0', Active: body['Active'] ?? true } },
    }))
    const result = await verify(['--yes', '--json'])
    expect([result.code, lineOf(result, 'create', 'create again')]).toEqual([
      1,
      'failed: another Id: the customer was created twice',
    ])
    const inactive = linesOf(result).filter(({ Check }) => Check === 'make inactive')
    expect(inactive.map(({ Verdict }) => Verdict)).toEqual(['as documented', 'as documented'])
    const updated = provider.requests.filter(({ body }) => body['Active'] === false)
    expect(updated.map(({ body }) => body['Id'])).toEqual(['1', '2'])
  })

  it('`verify-provider` ignores a callback with a wrong state and accepts the next callback with the right state', async () => {
    const statuses: number[] = []
    const result = await verify(['--yes', '--json'], {
      onErr: browser(async (callback) => {
        const forged = new URL(callback)
        forged.searchParams.set('state', 'canary')
        statuses.push((await fetch(forged)).status)
        statuses.push((await fetch(new URL('/elsewhere', callback))).status)
        statuses.push((await fetch(callback)).status)
      }),
    })
    expect([result.code, statuses]).toEqual([0, [400, 404, 200]])
    expect(result.err).toContain('A callback with another state was received and ignored.')
  })

  it('`verify-provider` skips the accounting steps if the callback has no realmId', async () => {
    const result = await verify(['--yes', '--json'], {
      onErr: browser((callback) => {
        callback.searchParams.delete('realmId')
        return fetch(callback)
      }),
    })
    expect(lineOf(result, 'connect', 'callback')).toMatch(/^differs: no realmId; members: /)
    expect(lineOf(result, 'query')).toContain('the callback had no realmId')
    expect(lineOf(result, 'revocation', 'revocation')).toMatch(/^as documented/)
    expect(result.err).not.toContain('still exists')
  })

  it('`verify-provider` does not exchange the code of a callback whose iss names another issuer than the provider', async () => {
    const result = await verify(['--yes', '--json'], {
      onErr: browser((callback) => {
        callback.searchParams.set('iss', 'https://canary.example')
        return fetch(callback)
      }),
    })
    expect(lineOf(result, 'connect', 'callback')).toBe('failed: iss names another issuer')
    const forms = provider.requests.filter(({ route }) => route.startsWith('POST /oauth2'))
    expect(forms).toHaveLength(1) // only the made-up code was sent to the token endpoint
  })

  it('`verify-provider` fails if no callback arrives in time, and reports that a grant may exist nevertheless', async () => {
    const result = await verify(['--yes', '--json', '--wait', '1'], { onErr: () => {} })
    expect([result.code, lineOf(result, 'connect')]).toEqual([
      1,
      'failed: no callback within 1 s; was the address opened?',
    ])
    expect(result.err).toContain('If consent was given in the browser, a grant may exist.')
  })

  it('`verify-provider` fails if another program already listens on the port of REDIRECT', async () => {
    const result = await verify(['--yes', '--json'], {
      env: { REDIRECT: `${provider.url}/callback` },
    })
    expect(lineOf(result, 'connect')).toMatch(/^failed: REDIRECT \(port \d+\): another process/)
    expect(result.err).not.toContain('grant')
  })

  describe('the command `verify-provider` with a redirect URI that does not lead to this machine', () => {
    const REDIRECT = 'https://app.example.com/callback'

    /** Enters the callback addresses one after the other at the prompts. */
    function paste(...addresses: readonly ((state: string) => string)[]): Promise<Run> {
      let state = ''
      return verify(['--json', '--no-create'], {
        env: { REDIRECT },
        typed: ['y', ...addresses.map((address) => () => address(state)), 'y', 'y'],
        onErr: (text) => void (state = /state=([\w-]+)/.exec(text)?.[1] ?? state),
      })
    }
    const callback = (state: string): string =>
      `${REDIRECT}?code=${provider.code}&state=${state}&realmId=${REALM}`

    it('`verify-provider` reads a pasted callback address without echo', async () => {
      const result = await paste(callback)
      expect([result.code, lineOf(result, 'connect', 'callback')]).toEqual([
        0,
        'as documented: company …889; members: code, realmId, state',
      ])
      expect(result.out + result.err).not.toContain(provider.code)
    })

    it('`verify-provider` prompts at most three times for the callback address of this run', async () => {
      const result = await paste(
        () => 'canary',
        () => callback('canary'),
        (state) => callback(state).replace('app.', 'other.'),
      )
      expect(result.err).toMatch(/is not an address\.[^]*has another state\./)
      expect(lineOf(result, 'connect')).toBe('failed: the pasted address is not that of REDIRECT')
    })

    it('`verify-provider` accepts a pasted callback that denies access even if the callback has no state', async () => {
      const result = await paste(() => `${REDIRECT}?error=access_denied`)
      expect(lineOf(result, 'connect', 'callback')).toBe('failed: access_denied; members: error')
      expect(result.err).not.toContain('may exist')
    })

    it('`verify-provider` marks the step "connect" as failed on Ctrl-D, and continues with the steps that need no company', async () => {
      const result = await paste(() => '\u0004')
      expect(lineOf(result, 'connect')).toBe('failed: nothing was pasted')
      expect(lineOf(result, 'limits', 'limit headers')).toBeDefined()
    })

    it('`verify-provider` marks the step "connect" as failed if the callback address must be pasted but there is no terminal', async () => {
      const result = await verify(['--yes', '--json'], { env: { REDIRECT } })
      expect(lineOf(result, 'connect')).toMatch(/^failed: REDIRECT does not lead to this machine/)
    })
  })

  it('`verify-provider` prints the results so far on Ctrl-C, and reports that the grant still exists', async () => {
    const stop = new AbortController()
    provider.override(apiRoute('query', 'GET'), () => {
      stop.abort(new CommandFailed(130, 'Stopped by SIGINT.'))
      return undefined
    })
    const result = await verify(['--yes', '--json'], { stop: stop.signal })
    expect(result.code).toBe(130)
    expect(lineOf(result, 'refresh', 'refresh token value')).toBeDefined()
    expect(lineOf(result, 'query')).toBe('skipped: stopped')
    expect(lineOf(result, 'revocation')).toBe('skipped: stopped')
    expect(result.err).toMatch(/The grant of this run still exists[^]*Stopped by SIGINT/)
  })

  it('`verify-provider` revokes the grant after a failed step', async () => {
    provider.override(apiRoute('query', 'GET'), () => ({ status: 500, body: '<html>' }))
    const result = await verify(['--yes', '--json'])
    expect([result.code, lineOf(result, 'query', 'query')]).toEqual([1, 'failed: 500, HTML'])
    expect(lineOf(result, 'revocation', 'revocation')).toBe('as documented: 200 for a JSON body')
  })

  it('`verify-provider` reports that the grant still exists if its revocation fails', async () => {
    provider.override('POST /v2/oauth2/tokens/revoke', () => ({ status: 500, body: '' }))
    const result = await verify(['--yes', '--json'])
    expect(lineOf(result, 'revocation', 'revocation')).toBe(
      'failed: 500, empty body for a JSON body',
    )
    expect(result.err).toContain('The grant of this run still exists.')
  })

  it('`verify-provider` rejects a response that is larger than 1 MiB', async () => {
    provider.override(apiRoute('query', 'GET'), () => ({ body: 'x'.repeat(2_000_000) }))
    const result = await verify(['--yes', '--json'])
    expect(lineOf(result, 'query')).toBe('failed: the response is larger than 1 MiB')
  })

  it('`verify-provider` does not follow a redirect response of the provider', async () => {
    const Location = `${provider.url}/discovery`
    provider.override(apiRoute('query', 'GET'), () => ({ status: 307, headers: { Location } }))
    const result = await verify(['--yes', '--json'])
    expect(lineOf(result, 'query', 'query')).toBe('failed: 307, empty body')
  })
})

const apiRoute = (resource: string, method = resource === 'query' ? 'GET' : 'POST'): string =>
  `${method} /accounting/v3/company/${REALM}/${resource}`
