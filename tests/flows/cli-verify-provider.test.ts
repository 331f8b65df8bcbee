import { freePort } from '@integration-host/shared/test-support/free-ports'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { CLI, parseJsonLines, runCli } from '../support/processes/cli.ts'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { startSystem, type System } from '../support/system.ts'

const CLIENT_ID = 'client-id-canary-1'
const CLIENT_SECRET = 'client-secret-canary-1'
const REALM = '9341453908059889'
/** Substrings that occur in the sandbox's tokens, codes, names and addresses. The output must contain none of them. */
const SECRETS = [
  CLIENT_SECRET,
  REALM,
  'canary',
  'sandbox-code-',
  'sandbox-access-',
  'sandbox-refresh-',
  '@sandbox',
]

interface Line {
  readonly Step: string
  readonly Check: string | null
  readonly Verdict: 'as documented' | 'differs' | 'skipped' | 'failed'
  readonly Seen: string
  readonly Expected: string | null
}

interface Verification {
  readonly code: number | null
  readonly stderr: string
  readonly lines: readonly Line[]
  /** Returns the result line of one check of a step. Without `check`, returns the line of the whole step. */
  readonly line: (step: string, check?: string) => string | undefined
  /** Returns a text `step check: verdict` for each result that deviates from the documentation. */
  readonly deviations: readonly string[]
}

describe('verify-provider against the sandbox', () => {
  let system: System
  let sandboxUrl: string
  let sandbox: ReturnType<typeof sandboxClient>

  beforeAll(async () => {
    system = await startSystem([])
    // Without REDIRECT the sandbox accepts any redirect URI on the loopback interface.
    sandboxUrl = system.start('sandbox-provider', { CLIENT_ID, CLIENT_SECRET, REDIRECT: '' }).url
    await system.ready('sandbox-provider')
    sandbox = sandboxClient(system)
  })
  afterAll(() => system[Symbol.asyncDispose]())
  beforeEach(() => sandbox.reset())

  interface Options {
    readonly args?: readonly string[]
    readonly env?: Readonly<Record<string, string>>
    /** What the user does with the printed address. By default the user connects the company. */
    readonly open?: (address: string) => Promise<unknown>
    /** When the output of the process matches this pattern, the process receives SIGINT. */
    readonly interruptAt?: RegExp
  }

  const connect = (address: string): Promise<unknown> =>
    fetch(`${address}&sandbox_company=${REALM}:canary-company`)

  /** Runs the program, and opens the printed address as the program's user would in a browser. */
  async function verify({
    args = [],
    env = {},
    open = connect,
    interruptAt,
  }: Options = {}): Promise<Verification> {
    await using started = startProcess([CLI, 'verify-provider', '--yes', '--json', ...args], {
      env: {
        DISCOVERY_URL: `${sandboxUrl}/.well-known/openid_sandbox_configuration`,
        CLIENT_ID,
        CLIENT_SECRET,
        REDIRECT: `http://127.0.0.1:${await freePort()}/callback`,
        ACCOUNTING_URL: sandboxUrl,
        ...env,
      },
    })
    // The program prints no address if a check ends the run before the authorization starts.
    const opened = started.waitForOutput(/^(http\S+)\n/m).then(
      ([, address = '']) => open(address),
      () => null,
    )
    if (interruptAt !== undefined) {
      await started.waitForOutput(interruptAt)
      await started.stop('SIGINT')
    }
    const { code, stdout, stderr } = await started.ended
    await opened
    const printed = stdout + stderr.replace(/^http\S+\n/m, '')
    for (const secret of SECRETS) expect(printed).not.toContain(secret)
    const lines = parseJsonLines<Line>(stdout)
    return {
      code,
      stderr,
      lines,
      line(step, check) {
        const match = lines.find((one) => one.Step === step && one.Check === (check ?? null))
        return match && `${match.Verdict}: ${match.Seen}`
      },
      deviations: lines
        .filter(({ Verdict }) => Verdict !== 'as documented')
        .map(
          ({ Step, Check, Verdict }) => `${Step}${Check === null ? '' : ` ${Check}`}: ${Verdict}`,
        ),
    }
  }

  describe('verify-provider against a provider that behaves like Intuit', () => {
    it('at a provider that behaves like Intuit, verify-provider reports "as documented" for every check except the host name check', async () => {
      const { code, lines, line, deviations, stderr } = await verify()
      expect([code, deviations]).toEqual([
        0,
        ['discovery provider host: differs', 'previous token: skipped'],
      ])
      expect(lines.length).toBeGreaterThan(25)
      expect(line('connect', 'callback')).toBe(
        'as documented: company …889; members: code, realmId, state',
      )
      expect(line('revocation', 'second revocation')).toBe('as documented: 400, empty body')
      expect(stderr).not.toContain('still exists')
    })

    it('after a rotation of the refresh token, verify-provider sends the previous refresh token exactly one time', async () => {
      await sandbox.set({ rotation: 'always' })
      const { code, line } = await verify()
      expect([code, line('refresh', 'refresh token value')]).toEqual([0, 'differs: changed'])
      expect(line('previous token', 'previous refresh token')).toBe(
        'as documented: rejected; the current one is still accepted',
      )
      await sandbox.set({ graceSeconds: 60 })
      expect((await verify()).line('previous token', 'previous refresh token')).toBe(
        'as documented: accepted; returns the current value',
      )
    })

    it('verify-provider skips the checks of the accounting API if ACCOUNTING_URL is not set', async () => {
      const { code, line } = await verify({ env: { ACCOUNTING_URL: '' } })
      expect([code, line('discovery', 'accounting address')]).toEqual([
        0,
        'skipped: none known: set ACCOUNTING_URL',
      ])
      for (const step of ['query', 'create', 'changed token'])
        expect(line(step)).toBe('skipped: no accounting address: set ACCOUNTING_URL')
    })

    it('verify-provider skips the id token checks without the scope openid, and the company checks without an accounting scope', async () => {
      const withoutOpenId = await verify({ env: { SCOPE: 'com.intuit.quickbooks.accounting' } })
      expect([withoutOpenId.code, withoutOpenId.line('id token')]).toEqual([
        0,
        'skipped: SCOPE has no openid',
      ])
      const openIdAlone = await verify({ env: { SCOPE: 'openid' } })
      expect([openIdAlone.code, openIdAlone.line('connect', 'callback')]).toEqual([
        0,
        'as documented: no company; members: code, state',
      ])
      expect(openIdAlone.line('query')).toContain('the company is not known')
    })
  })

  describe('verify-provider against a strictly standards-compliant provider', () => {
    beforeEach(() => sandbox.set({ personality: 'strict' }))

    it('verify-provider reports PKCE, nonce, iss, rotation and all other checks of a standards-compliant provider as documented', async () => {
      const { code, line, deviations } = await verify({ env: { PROVIDER_PROFILE: 'generic' } })
      expect([code, deviations]).toEqual([0, ['create: skipped', 'revocation: skipped']])
      expect(line('id token', 'nonce')).toBe('as documented: repeated')
      expect(line('connect', 'callback')).toContain('members: code, iss, realmId, state')
      expect(line('previous token', 'previous refresh token')).toBe(
        'as documented: rejected, and the grant has ended',
      )
    })

    it('verify-provider revokes the grant with a form-encoded body, and expects 200 for a second revocation as RFC 7009 requires', async () => {
      await sandbox.set({ revokeOnReuse: false })
      const { code, line } = await verify({ env: { PROVIDER_PROFILE: 'generic' } })
      expect([code, line('revocation', 'revocation')]).toEqual([
        0,
        'as documented: 200 for a form body',
      ])
      expect(line('revocation', 'second revocation')).toBe('as documented: 200, empty body')
    })

    it('verify-provider lists the differences between a standards-compliant provider and the documentation of Intuit', async () => {
      const { code, line, deviations } = await verify({ args: ['--no-create'] })
      expect([code, deviations]).toEqual([
        0,
        [
          'discovery provider host: differs',
          'discovery discovery document: differs',
          'id token nonce: differs',
          'refresh refresh token value: differs',
          'create: skipped',
          'revocation: skipped',
        ],
      ])
      expect(line('discovery', 'discovery document')).toMatch(
        /extra: .*accounting_url, .*code_challenge_methods_supported/,
      )
    })
  })

  describe('verify-provider against a provider with faults', () => {
    it('verify-provider starts no authorization if the client id or secret is wrong', async () => {
      for (const wrong of [{ CLIENT_SECRET: 'another-secret' }, { CLIENT_ID: 'another-client' }]) {
        const { code, line, stderr } = await verify({ env: wrong })
        expect([code, line('key pair', 'key pair')]).toEqual([
          1,
          'failed: 401 invalid_client, JSON',
        ])
        expect(line('connect')).toBe('skipped: needs a key pair that the provider accepts')
        expect(stderr).not.toContain('connect/oauth2')
      }
    })

    it('verify-provider accepts the second of two configured client secrets, as token-service does', async () => {
      const { line, lines } = await verify({
        args: ['--no-create'],
        env: { CLIENT_SECRET: `another-secret,${CLIENT_SECRET}` },
      })
      const verdicts = lines.filter(({ Check }) => Check === 'key pair').map(({ Seen }) => Seen)
      expect(verdicts).toEqual([
        'secret 1 of 2: 401 invalid_client, JSON',
        'secret 2 of 2: invalid_grant for a made-up code',
      ])
      expect(line('revocation', 'revocation')).toMatch(/^as documented/)
    })

    it('verify-provider ends without a grant if the user denies consent', async () => {
      const { code, line, stderr } = await verify({
        open: (address) => fetch(`${address}&sandbox_company=deny`),
      })
      expect([code, line('connect', 'callback')]).toEqual([
        1,
        'failed: access_denied; members: error, state',
      ])
      expect(line('revocation')).toBe('skipped: needs a connected company')
      expect(stderr).not.toMatch(/grant (of this run|may)/)
    })

    it('verify-provider reports the missing members of the discovery document', async () => {
      const response = await fetch(`${sandboxUrl}/.well-known/openid_configuration`)
      const {
        claims_supported: _,
        revocation_endpoint: __,
        ...document
      } = (await response.json()) as Record<string, unknown>
      await sandbox.addFault({ target: 'discovery', status: 200, body: document })
      const { code, line, stderr } = await verify({ args: ['--no-create'] })
      expect([code, line('discovery', 'discovery document')]).toEqual([
        0,
        'differs: missing: revocation_endpoint, claims_supported',
      ])
      expect(line('revocation')).toContain('no usable revocation_endpoint')
      expect(stderr).toContain('The grant of this run still exists.')
    })

    it.each([
      [{ status: 200, body: { issuer: 'canary' } }, /^failed: no usable issuer, authorization_end/],
      [{ status: 200, body: '<html>canary' }, 'failed: not a JSON object'],
      [{ status: 500 }, 'failed: 500 server_error, JSON'],
    ])(
      'verify-provider skips all further steps if the response to the request for the discovery document is %j',
      async (what, seen) => {
        await sandbox.addFault({ target: 'discovery', ...what })
        const { code, line, lines } = await verify()
        expect([code, line('discovery', 'discovery document')]).toEqual([
          1,
          expect.stringMatching(seen),
        ])
        const others = lines.filter(({ Step }) => !['discovery', 'limits'].includes(Step))
        expect(others.every(({ Verdict }) => Verdict === 'skipped')).toBe(true)
      },
    )

    it.each([
      [{ status: 500, body: 'canary' }, 'failed: 500, neither JSON nor XML', true],
      [{ status: 400 }, 'failed: 400 invalid_grant, JSON', false],
      [{ drop: 'after' }, /^failed: no response \(/, true],
    ])(
      'if a code exchange fails with %j, verify-provider reports whether the provider may have created a grant',
      async (what, seen, mayExist) => {
        const { code, line, stderr } = await verify({
          async open(address) {
            await sandbox.addFault({ target: 'token', ...what })
            await connect(address)
          },
        })
        expect([code, line('connect', 'code exchange') ?? line('connect')]).toEqual([
          1,
          expect.stringMatching(seen),
        ])
        expect(stderr.includes('a grant may exist')).toBe(mayExist)
      },
    )

    it('verify-provider rejects an id token that the provider did not sign', async () => {
      const part = (value: object): string =>
        Buffer.from(JSON.stringify(value)).toString('base64url')
      const id_token = `${part({ alg: 'RS256', kid: 'canary' })}.${part({ aud: 'canary', nonce: 'canary' })}.canary`
      const body = {
        token_type: 'bearer',
        access_token: 'canary-1',
        refresh_token: 'canary-2',
        id_token,
      }
      const { code, lines, line } = await verify({
        async open(address) {
          await sandbox.addFault({ target: 'token', status: 200, body })
          await connect(address)
        },
      })
      expect(code).toBe(1)
      const failed = lines.filter(
        ({ Step, Verdict }) => Step === 'id token' && Verdict === 'failed',
      )
      expect(failed.map(({ Check }) => Check)).toEqual([
        'signature',
        'issuer',
        'audience',
        'nonce',
        'id token times',
      ])
      expect(line('connect', 'code exchange')).toContain('missing: expires_in, x_refresh')
    })

    it('verify-provider reports the rate-limit headers of a throttled call', async () => {
      const headers = { 'Retry-After': '30', 'X-Limit-Note': 'canary' }
      await sandbox.addFault({ target: 'api', status: 429, headers })
      const { code, line } = await verify()
      expect([code, line('query', 'query')]).toEqual([1, 'failed: 429, XML, code 3001'])
      expect(line('limits', 'limit headers')).toBe('differs: retry-after: 30, x-limit-note')
      expect(line('revocation', 'revocation')).toMatch(/^as documented/)
    })

    it('verify-provider waits for a response for at most --timeout seconds', async () => {
      await sandbox.addFault({ target: 'api', latencyMs: 120_000 })
      const { code, line } = await verify({ args: ['--timeout', '1'] })
      expect([code, line('query')]).toEqual([1, 'failed: no response within 1 s'])
      expect(line('create', 'create again')).toBe('as documented: the same Id')
    })

    it('verify-provider does not repeat the check of client id and secret after a 429 response', async () => {
      await sandbox.addFault({ target: 'token', status: 429 })
      const first = await verify()
      expect([first.code, first.line('key pair', 'key pair')]).toEqual([
        1,
        expect.stringMatching(/^failed: 429/),
      ])
      expect((await verify()).code).toBe(0)
    })

    it('verify-provider reports that the grant still exists if the grant cannot be revoked', async () => {
      await sandbox.addFault({ target: 'revoke', status: 503, calls: 2 })
      const { code, line, stderr } = await verify({ args: ['--no-create'] })
      expect([code, line('revocation', 'revocation')]).toEqual([
        1,
        expect.stringMatching(/^failed: 503/),
      ])
      expect(stderr).toContain('The grant of this run still exists.')
    })

    it('verify-provider prints its results so far on SIGINT, and reports that the grant still exists', async () => {
      await sandbox.addFault({ target: 'api', latencyMs: 120_000 })
      const { code, line, stderr } = await verify({ interruptAt: /6\/11 query/ })
      expect(code).toBe(130)
      expect(line('refresh', 'expiry members')).toMatch(/^as documented/)
      expect(line('query')).toBe('skipped: stopped')
      expect(stderr).toMatch(/The grant of this run still exists[^]*Stopped by SIGINT/)
    })
  })

  describe('doctor with the client credentials of a provider', () => {
    async function keyPair(env: Readonly<Record<string, string>>): Promise<unknown> {
      const { stdout } = await runCli(['doctor', '--only', 'provider', '--json'], {
        env: {
          DISCOVERY_URL: `${sandboxUrl}/.well-known/openid_configuration`,
          CLIENT_ID,
          CLIENT_SECRET,
          ...env,
        },
      })
      for (const secret of SECRETS) expect(stdout).not.toContain(secret)
      const line = stdout.split('\n').find((one) => one.includes('"key pair"'))
      return JSON.parse(line ?? '{}')
    }

    it.each(['intuit', 'strict'])(
      'doctor checks the client id and secret without a user consent at a provider that behaves like "%s"',
      async (personality) => {
        await sandbox.set({ personality })
        expect(await keyPair({})).toMatchObject({ Verdict: 'ok' })
        expect(await keyPair({ CLIENT_SECRET: 'another' })).toMatchObject({
          Verdict: 'problem',
          Found: 'rejected by the token endpoint',
        })
        expect(await keyPair({ CLIENT_SECRET: '' })).toMatchObject({
          Verdict: 'skipped',
          Found: 'not checked here: needs CLIENT_SECRET',
        })
      },
    )
  })
})
