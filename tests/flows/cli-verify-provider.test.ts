import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { startSystem, type System } from '../support/system.ts'

const PROGRAM = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url))
const CLIENT_ID = 'client-id-canary-1'
const CLIENT_SECRET = 'client-secret-canary-1'
const REALM = '9341453908059889'
/** What every token, code, name and address of the sandbox has in it. */
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
  readonly err: string
  readonly lines: readonly Line[]
  /** Of one check, or of a step as a whole. */
  readonly line: (step: string, check?: string) => string | undefined
  /** `step check: verdict` of all that are not as documented. */
  readonly deviations: readonly string[]
}

describe('verify-provider against the sandbox', () => {
  let system: System
  let sandboxUrl: string

  beforeAll(async () => {
    system = await startSystem([])
    // Without REDIRECT any redirect URI on this machine is registered.
    sandboxUrl = system.start('sandbox-provider', { CLIENT_ID, CLIENT_SECRET, REDIRECT: '' }).url
    await system.ready('sandbox-provider')
  })
  afterAll(() => system[Symbol.asyncDispose]())
  beforeEach(() => sandbox('POST', 'reset'))

  async function sandbox(method: string, path: string, body?: unknown): Promise<void> {
    const response = await fetch(`${sandboxUrl}/sandbox/${path}`, {
      method,
      headers: { 'Content-Type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    expect(response.ok).toBe(true)
    await response.body?.cancel()
  }
  const fault = (what: object): Promise<void> => sandbox('POST', 'faults', what)

  interface Options {
    readonly args?: readonly string[]
    readonly env?: Readonly<Record<string, string>>
    /** What the person does with the address; default: connects the company. */
    readonly open?: (address: string) => Promise<unknown>
    /** The process gets SIGINT, once, when it has written this. */
    readonly interruptAt?: string
  }

  const connect = (address: string): Promise<unknown> =>
    fetch(`${address}&sandbox_company=${REALM}:canary-company`)

  /** Runs the program as a process, as a person with an account would. */
  async function verify({
    args = [],
    env = {},
    open = connect,
    interruptAt,
  }: Options = {}): Promise<Verification> {
    const { PATH = '' } = process.env
    const child = spawn(
      process.execPath,
      [PROGRAM, 'verify-provider', '--yes', '--json', ...args],
      {
        env: {
          PATH,
          DISCOVERY_URL: `${sandboxUrl}/.well-known/openid_sandbox_configuration`,
          CLIENT_ID,
          CLIENT_SECRET,
          REDIRECT: `http://127.0.0.1:${await freePort()}/callback`,
          ACCOUNTING_URL: sandboxUrl,
          ...env,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    )
    let err = ''
    const opened: Promise<unknown>[] = []
    child.stderr.setEncoding('utf8').on('data', (data: string) => {
      err += data
      const address = /^(http\S+)\n/m.exec(err)?.[1]
      if (address !== undefined && opened.length === 0) opened.push(open(address))
      if (interruptAt !== undefined && !child.killed && err.includes(interruptAt))
        child.kill('SIGINT')
    })
    const [out, [code]] = await Promise.all([
      text(child.stdout),
      once(child, 'close') as Promise<[number | null]>,
    ])
    await Promise.all(opened)
    const shown = out + err.replace(/^http\S+\n/m, '')
    for (const secret of SECRETS) expect(shown).not.toContain(secret)
    const lines = out
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Line)
    return {
      code,
      err,
      lines,
      line(step, check) {
        const found = lines.find((one) => one.Step === step && one.Check === (check ?? null))
        return found && `${found.Verdict}: ${found.Seen}`
      },
      deviations: lines
        .filter(({ Verdict }) => Verdict !== 'as documented')
        .map(
          ({ Step, Check, Verdict }) => `${Step}${Check === null ? '' : ` ${Check}`}: ${Verdict}`,
        ),
    }
  }

  describe('as Intuit', () => {
    it('finds everything as documented but the host', async () => {
      const { code, lines, line, deviations, err } = await verify()
      expect([code, deviations]).toEqual([
        0,
        ['discovery provider host: differs', 'previous token: skipped'],
      ])
      expect(lines.length).toBeGreaterThan(25)
      expect(line('connect', 'callback')).toBe(
        'as documented: company …889; members: code, realmId, state',
      )
      expect(line('revocation', 'second revocation')).toBe('as documented: 400, empty body')
      expect(err).not.toContain('still exists')
    })

    it('uses the previous refresh token once the value has changed', async () => {
      await sandbox('PUT', 'settings', { rotation: 'always' })
      const { code, line } = await verify()
      expect([code, line('refresh', 'refresh token value')]).toEqual([0, 'differs: changed'])
      expect(line('previous token', 'previous refresh token')).toBe(
        'as documented: rejected; the current one is still accepted',
      )
      await sandbox('PUT', 'settings', { graceSeconds: 60 })
      expect((await verify()).line('previous token', 'previous refresh token')).toBe(
        'as documented: accepted; returns the current value',
      )
    })

    it('needs ACCOUNTING_URL for the accounting API, and leaves it out without', async () => {
      const { code, line } = await verify({ env: { ACCOUNTING_URL: '' } })
      expect([code, line('discovery', 'accounting address')]).toEqual([
        0,
        'skipped: none known: set ACCOUNTING_URL',
      ])
      for (const step of ['query', 'create', 'changed token'])
        expect(line(step)).toBe('skipped: no accounting address: set ACCOUNTING_URL')
    })

    it('leaves out the id token without openid, and the company without an accounting scope', async () => {
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

  describe('as a strict provider', () => {
    beforeEach(() => sandbox('PUT', 'settings', { personality: 'strict' }))

    it('finds everything as the standards have it, with PKCE, nonce, iss and rotation', async () => {
      const { code, line, deviations } = await verify({ env: { PROVIDER_PROFILE: 'generic' } })
      expect([code, deviations]).toEqual([0, ['create: skipped', 'revocation: skipped']])
      expect(line('id token', 'nonce')).toBe('as documented: repeated')
      expect(line('connect', 'callback')).toContain('members: code, iss, realmId, state')
      expect(line('previous token', 'previous refresh token')).toBe(
        'as documented: rejected, and the grant has ended',
      )
    })

    it('revokes by a form, and the second time as RFC 7009 has it', async () => {
      await sandbox('PUT', 'settings', { revokeOnReuse: false })
      const { code, line } = await verify({ env: { PROVIDER_PROFILE: 'generic' } })
      expect([code, line('revocation', 'revocation')]).toEqual([
        0,
        'as documented: 200 for a form body',
      ])
      expect(line('revocation', 'second revocation')).toBe('as documented: 200, empty body')
    })

    it('names what differs from Intuit', async () => {
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

  describe('with faults', () => {
    it('does not go to the browser with a wrong key pair', async () => {
      for (const wrong of [{ CLIENT_SECRET: 'another-secret' }, { CLIENT_ID: 'another-client' }]) {
        const { code, line, err } = await verify({ env: wrong })
        expect([code, line('key pair', 'key pair')]).toEqual([
          1,
          'failed: 401 invalid_client, JSON',
        ])
        expect(line('connect')).toBe('skipped: needs a key pair that the provider accepts')
        expect(err).not.toContain('connect/oauth2')
      }
    })

    it('accepts the second of two secrets, as token-service does', async () => {
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

    it('ends without a grant when the person denies', async () => {
      const { code, line, err } = await verify({
        open: (address) => fetch(`${address}&sandbox_company=deny`),
      })
      expect([code, line('connect', 'callback')]).toEqual([
        1,
        'failed: access_denied; members: error, state',
      ])
      expect(line('revocation')).toBe('skipped: needs a connected company')
      expect(err).not.toMatch(/grant (of this run|may)/)
    })

    it('names missing members of the discovery document', async () => {
      const response = await fetch(`${sandboxUrl}/.well-known/openid_configuration`)
      const {
        claims_supported: _,
        revocation_endpoint: __,
        ...document
      } = (await response.json()) as Record<string, unknown>
      await fault({ target: 'discovery', status: 200, body: document })
      const { code, line, err } = await verify({ args: ['--no-create'] })
      expect([code, line('discovery', 'discovery document')]).toEqual([
        0,
        'differs: missing: revocation_endpoint, claims_supported',
      ])
      expect(line('revocation')).toContain('no usable revocation_endpoint')
      expect(err).toContain('The grant of this run still exists.')
    })

    it.each([
      [{ status: 200, body: { issuer: 'canary' } }, /^failed: no usable issuer, authorization_end/],
      [{ status: 200, body: '<html>canary' }, 'failed: not a JSON object'],
      [{ status: 500 }, 'failed: 500 server_error, JSON'],
    ])('has nothing to go on without a discovery document: %j', async (what, seen) => {
      await fault({ target: 'discovery', ...what })
      const { code, line, lines } = await verify()
      expect([code, line('discovery', 'discovery document')]).toEqual([
        1,
        expect.stringMatching(seen),
      ])
      const others = lines.filter(({ Step }) => !['discovery', 'limits'].includes(Step))
      expect(others.every(({ Verdict }) => Verdict === 'skipped')).toBe(true)
    })

    it.each([
      [{ status: 500, body: 'canary' }, 'failed: 500, neither JSON nor XML', true],
      [{ status: 400 }, 'failed: 400 invalid_grant, JSON', false],
      [{ drop: 'after' }, /^failed: no response \(/, true],
    ])('says what may be left after a failed code exchange: %j', async (what, seen, mayExist) => {
      const { code, line, err } = await verify({
        async open(address) {
          await fault({ target: 'token', ...what })
          await connect(address)
        },
      })
      expect([code, line('connect', 'code exchange') ?? line('connect')]).toEqual([
        1,
        expect.stringMatching(seen),
      ])
      expect(err.includes('a grant may exist')).toBe(mayExist)
    })

    it('finds an id token that is not signed by the provider', async () => {
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
          await fault({ target: 'token', status: 200, body })
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

    it('shows a throttled call with the headers that tell the limit', async () => {
      const headers = { 'Retry-After': '30', 'X-Limit-Note': 'canary' }
      await fault({ target: 'api', status: 429, headers })
      const { code, line } = await verify()
      expect([code, line('query', 'query')]).toEqual([1, 'failed: 429, XML, code 3001'])
      expect(line('limits', 'limit headers')).toBe('differs: retry-after: 30, x-limit-note')
      expect(line('revocation', 'revocation')).toMatch(/^as documented/)
    })

    it('does not wait for a call without a response longer than --timeout', async () => {
      await fault({ target: 'api', latencyMs: 120_000 })
      const { code, line } = await verify({ args: ['--timeout', '1'] })
      expect([code, line('query')]).toEqual([1, 'failed: no response within 1 s'])
      expect(line('create', 'create again')).toBe('as documented: the same Id')
    })

    it('tries the key pair again only at the next run', async () => {
      await fault({ target: 'token', status: 429 })
      const first = await verify()
      expect([first.code, first.line('key pair', 'key pair')]).toEqual([
        1,
        expect.stringMatching(/^failed: 429/),
      ])
      expect((await verify()).code).toBe(0)
    })

    it('says that the grant still exists if it cannot be revoked', async () => {
      await fault({ target: 'revoke', status: 503, calls: 2 })
      const { code, line, err } = await verify({ args: ['--no-create'] })
      expect([code, line('revocation', 'revocation')]).toEqual([
        1,
        expect.stringMatching(/^failed: 503/),
      ])
      expect(err).toContain('The grant of this run still exists.')
    })

    it('shows at Ctrl-C what was seen, and says that the grant still exists', async () => {
      await fault({ target: 'api', latencyMs: 120_000 })
      const { code, line, err } = await verify({ interruptAt: '6/11 query' })
      expect(code).toBe(130)
      expect(line('refresh', 'expiry members')).toMatch(/^as documented/)
      expect(line('query')).toBe('skipped: stopped')
      expect(err).toMatch(/The grant of this run still exists[^]*Stopped by SIGINT/)
    })
  })

  describe('doctor', () => {
    async function keyPair(env: Readonly<Record<string, string>>): Promise<unknown> {
      const { PATH = '' } = process.env
      const child = spawn(process.execPath, [PROGRAM, 'doctor', '--only', 'provider', '--json'], {
        env: {
          PATH,
          DISCOVERY_URL: `${sandboxUrl}/.well-known/openid_configuration`,
          CLIENT_ID,
          CLIENT_SECRET,
          ...env,
        },
        stdio: ['ignore', 'pipe', 'ignore'],
      })
      const out = await text(child.stdout)
      for (const secret of SECRETS) expect(out).not.toContain(secret)
      const line = out.split('\n').find((one) => one.includes('"key pair"'))
      return JSON.parse(line ?? '{}')
    }

    it.each(['intuit', 'strict'])(
      'checks the key pair without consent: %s',
      async (personality) => {
        await sandbox('PUT', 'settings', { personality })
        expect(await keyPair({})).toMatchObject({ Verdict: 'ok' })
        expect(await keyPair({ CLIENT_SECRET: 'another' })).toMatchObject({
          Verdict: 'problem',
          Found: 'rejected by the token endpoint',
        })
        expect(await keyPair({ CLIENT_SECRET: '' })).toMatchObject({
          Verdict: 'skipped',
          Found: 'not checked: needs CLIENT_SECRET',
        })
      },
    )
  })
})
