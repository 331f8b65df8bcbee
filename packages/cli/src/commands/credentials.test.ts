import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { describe, expect, it } from 'vitest'
import { problem, useFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const AT = '2026-11-21T08:00:00.000Z'
const fault = {
  Code: 'invalid_grant',
  Message: 'Couldn\'t refresh token for realm ACC-9, {"error":"invalid_grant"}',
  At: AT,
  Attempts: 1,
  TraceId: 'tid-77',
  Remedy: 'Reconnect the company: the provider has ended this grant.',
}
const view = (name: string, members: Partial<CredentialView> = {}): CredentialView => ({
  Name: name,
  Environment: name.slice(4),
  Expiry: AT,
  Status: 'active',
  State: 'active',
  Attempts: 0,
  Version: 1,
  RefreshedAt: AT,
  ...members,
})
const faulted = view('ACC-9', { Status: 'faulted', State: 'must_reconnect', Fault: fault })

const labelled = view('ACC-3', {
  Label: 'Acme <b>\u001b[31m Söhne',
  Tags: { plan: 'gold', team: 'x y' },
  RefreshDueAt: AT,
  IdleExpiry: AT,
  NextTryAt: AT,
  Attempts: 2,
})

const service = useFakeService({
  // Each page has two credentials, regardless of the requested limit, so that a list has several pages.
  'GET /credentials': ({ query }) => {
    const all = [view('ACC-1'), view('ACC-2'), labelled, view('ACC-4'), faulted]
    const start = all.findIndex(({ Name }) => Name === query.get('cursor')) + 1
    const items = all.slice(start, start + 2)
    return { body: { items, next_cursor: start + 2 < all.length ? items.at(-1)?.Name : null } }
  },
  'GET /credentials/ACC-1': () => ({ body: view('ACC-1', { HardExpiry: AT }) }),
  'GET /credentials/ACC-3': () => ({ body: labelled }),
  'GET /credentials/ACC-9': () => ({ body: faulted }),
  'PATCH /credentials/ACC-3': () => ({ body: labelled }),
  'PATCH /credentials/ACC-2': () => problem(404, 'credential_not_found'),
  'POST /credentials/ACC-1/refresh': () => ({ body: view('ACC-1', { Version: 2 }) }),
  'POST /credentials/ACC-9/refresh': () => problem(424, 'credential_faulted', { Fault: fault }),
  'DELETE /credentials/ACC-1': () => ({ status: 204 }),
  'DELETE /credentials/ACC-2': () => problem(404, 'credential_not_found'),
  'DELETE /credentials/ACC-3': () => ({ status: 204, headers: { Revocation: 'confirmed' } }),
  'DELETE /credentials/ACC-4': () => ({ status: 204, headers: { Revocation: 'unconfirmed' } }),
  'POST /authorizations': () => ({
    status: 201,
    body: { url: 'https://provider.example/connect?state=s', state: 's', expires_at: AT },
  }),
})

const routes = () => service.requests.map(({ route }) => route)

describe('the command `credentials list`', () => {
  it('`credentials list` prints the credentials of all pages as a table with aligned columns', async () => {
    const { code, out, err } = await run(['credentials', 'list'], service)
    expect([code, err]).toEqual([0, ''])
    const lines = out.trimEnd().split('\n')
    expect(lines.map((line) => line.split(/ +/)[0])).toEqual([
      'NAME',
      'ACC-1',
      'ACC-2',
      'ACC-3',
      'ACC-4',
      'ACC-9',
    ])
    expect(lines[5]).toMatch(/must_reconnect .* invalid_grant$/)
    expect(service.requests.map(({ query }) => query.get('cursor'))).toEqual([
      null,
      'ACC-2',
      'ACC-4',
    ])
  })

  it('`credentials list` sends its filter with the request for each page, and prints labels without control characters', async () => {
    const conditions = ['--state', 'failing,expiring', '--class', 'hard_expired']
    const tags = ['--tag', 'plan=a=b', '--tag', 'team=x y', '--q', 'Söhne & Co']
    const { code, out } = await run(['credentials', 'list', ...conditions, ...tags], service)
    expect(code).toBe(0)
    expect(out).toMatch(/^ACC-3 +Acme <b>\S* Söhne +active /m)
    for (const { query } of service.requests) {
      expect(query.get('state')).toBe('failing,expiring')
      expect(query.get('class')).toBe('hard_expired')
      expect(query.getAll('tag')).toEqual(['plan:a=b', 'team:x y'])
      expect(query.get('q')).toBe('Söhne & Co')
    }
    expect(service.requests).toHaveLength(3)
    expect((await run(['credentials', 'list', '--tag', 'plan'], service)).err).toContain(
      'NAME=VALUE',
    )
  })

  it('`credentials list --json` prints one credential on each line', async () => {
    const { json } = await run(['credentials', 'list', '--json'], service)
    expect(json).toHaveLength(5)
    expect(json[4]).toEqual(faulted)
  })
})

describe('the command `credentials show`', () => {
  it('`credentials show` prints a credential', async () => {
    const { code, out } = await run(['credentials', 'show', 'ACC-1'], service)
    expect(code).toBe(0)
    expect(out).toMatch(/^Name +ACC-1\n/)
    expect(out).toMatch(/Hard expiry +2026-11-21/)
    expect((await run(['credentials', 'show', 'ACC-1', '--json'], service)).json).toEqual([
      view('ACC-1', { HardExpiry: AT }),
    ])
  })

  it('`credentials show` prints the labels, the failed attempts and the times of the grant', async () => {
    const { code, out } = await run(['credentials', 'show', 'ACC-3'], service)
    expect(code).toBe(0)
    expect(out).not.toContain('\u001b')
    expect(out).toMatch(/^Tag +plan=gold\nTag +team=x y$/m)
    for (const label of ['Refresh due', 'Idle expiry', 'Next try'])
      expect(out).toMatch(new RegExp(`^${label} +2026-11-21`, 'm'))
    expect(out).toMatch(/^Attempts +2$/m)
  })

  it('`credentials show` prints fault, trace id and remedy of a faulted credential, and exits with code 4', async () => {
    const { code, out } = await run(['credentials', 'show', 'ACC-9'], service)
    expect(code).toBe(4)
    for (const text of [fault.Code, fault.Message, fault.TraceId, fault.Remedy])
      expect(out).toContain(text)
    expect(await run(['credentials', 'show', 'ACC-9', '--json'], service)).toMatchObject({
      code: 4,
      json: [faulted],
    })
  })
})

describe('the command `credentials label`', () => {
  const label = (...args: string[]) => run(['credentials', 'label', 'ACC-3', ...args], service)
  const bodies = () => service.requests.map(({ body }) => body)

  it('`credentials label` sends only the given members, and prints the credential', async () => {
    const { code, out } = await label('--label', 'Acme', '--tag', 'plan=gold', '--tag', 'empty=')
    expect([code, out]).toEqual([0, expect.stringMatching(/^Name +ACC-3\n/)])
    await label('--label', 'Acme')
    await label('--tag', 'plan=a=b')
    await label('--clear')
    await label('--clear', '--label', 'Acme')
    expect(bodies()).toEqual([
      { Label: 'Acme', Tags: { plan: 'gold', empty: '' } },
      { Label: 'Acme' },
      { Tags: { plan: 'a=b' } },
      { Label: null, Tags: null },
      { Label: 'Acme', Tags: null },
    ])
    expect((await label('--clear', '--json')).json).toEqual([labelled])
  })

  it.each([
    [[], '--label, --tag or --clear is needed'],
    [['--label', ''], '--label must not be blank'],
    [['--label', 'a\u202eb'], 'bidirectional overrides'],
    [['--label', 'x'.repeat(101)], 'at most 100 characters'],
    [['--tag', 'plan'], '--tag must be NAME=VALUE'],
    [['--tag', 'a:b=c'], 'none of them : or ='],
    [['--tag', `a=${'x'.repeat(257)}`], 'at most 256 characters'],
  ])('`credentials label` rejects %j and sends nothing', async (args, message) => {
    const { code, err } = await label(...args)
    expect([code, err]).toEqual([2, expect.stringContaining(message)])
    expect(service.requests).toEqual([])
  })

  it('`credentials label` exits with code 3 for an unknown credential', async () => {
    const args = ['credentials', 'label', 'ACC-2', '--clear']
    expect((await run(args, service)).code).toBe(3)
  })
})

describe('the command `credentials refresh`', () => {
  it('`credentials refresh` prints the refreshed credential', async () => {
    const { code, json } = await run(['credentials', 'refresh', 'ACC-1', '--json'], service)
    expect([code, json]).toEqual([0, [view('ACC-1', { Version: 2 })]])
  })

  it('`credentials refresh` prints a fault on standard error, and exits with code 4', async () => {
    const { code, out, err } = await run(['credentials', 'refresh', 'ACC-9', '--json'], service)
    expect({ code, out }).toEqual({ code: 4, out: '' })
    for (const text of [fault.Code, fault.Message, fault.TraceId, fault.Remedy])
      expect(err).toContain(text)
  })
})

describe('the option --reason of `credentials refresh` and `credentials remove`', () => {
  it.each([
    [['refresh', 'ACC-1'], 'POST /credentials/ACC-1/refresh'],
    [['remove', 'ACC-1', '--yes'], 'DELETE /credentials/ACC-1'],
  ])(
    '`credentials %s` sends the reason, and rejects a reason that is too long',
    async (args, route) => {
      const command = ['credentials', ...args]
      expect((await run([...command, '--reason', 'r'.repeat(501)], service)).code).toBe(2)
      expect(routes()).toEqual([])
      expect((await run([...command, '--reason', 'asked for'], service)).code).toBe(0)
      expect(service.requests).toMatchObject([{ route, body: { Reason: 'asked for' } }])
    },
  )
})

describe('the command `credentials connect`', () => {
  it('`credentials connect` prints only the address on standard output', async () => {
    const args = ['credentials', 'connect', '--realm', '42', '--return-to', 'http://127.0.0.1/done']
    const { code, out, err } = await run(args, service)
    expect([code, out]).toEqual([0, 'https://provider.example/connect?state=s\n'])
    expect(err).toContain(AT)
    expect(service.requests[0]?.body).toEqual({ realm: '42', return_to: 'http://127.0.0.1/done' })
  })

  it('`credentials connect` without --realm starts an authorization for any company', async () => {
    const { json, err } = await run(['credentials', 'connect', '--json'], service)
    expect([json, err]).toMatchObject([[{ expires_at: AT }], ''])
    expect(service.requests[0]?.body).toEqual({})
  })
})

describe('the command `credentials remove`', () => {
  const remove = ['credentials', 'remove', 'ACC-1']

  it('`credentials remove` prompts for confirmation on a terminal, and does nothing unless the user enters yes', async () => {
    for (const typed of ['', 'n', 'yess']) {
      const { code, err } = await run(remove, { ...service, typed: [typed] })
      expect([code, err]).toEqual([1, expect.stringContaining('Nothing was removed')])
    }
    const closed = await run(remove, { ...service, typed: [] })
    expect([closed.code, closed.err]).toEqual([1, expect.stringContaining('nothing was done')])
    expect(routes()).toEqual([])
    expect(await run(remove, { ...service, typed: ['y'] })).toMatchObject({
      code: 0,
      out: 'ACC-1 is removed.\n',
    })
    expect(routes()).toEqual(['DELETE /credentials/ACC-1'])
  })

  it.each([
    ['ACC-3', 'confirmed', 'The provider confirmed that its grant has ended.'],
    ['ACC-4', 'unconfirmed', 'The provider did not confirm that the grant has ended.'],
  ])(
    '`credentials remove %s` reports that the revocation is %s',
    async (name, Revocation, sentence) => {
      const removal = ['credentials', 'remove', name, '--yes']
      const removed = await run(removal, service)
      expect([removed.out, removed.err]).toEqual([
        `${name} is removed.\n`,
        expect.stringContaining(sentence),
      ])
      expect((await run([...removal, '--json'], service)).json).toEqual([
        { Name: name, Revocation },
      ])
    },
  )

  it('`credentials remove` does nothing if standard input is not a terminal and --yes is missing', async () => {
    expect((await run(remove, service)).code).toBe(2)
    expect(routes()).toEqual([])
  })

  it('`credentials remove --erase` mentions the erasure in its prompt, and requests the erasure', async () => {
    const removed = await run([...remove, '--erase'], { ...service, typed: ['y'] })
    expect(removed.err).toContain('and erase the data of its runs')
    expect(removed.err).toContain('The coordinators erase')
    expect(routes()).toEqual(['DELETE /credentials/ACC-1'])
    expect(service.requests[0]?.query.get('erase')).toBe('true')
  })

  it('`credentials remove --yes` needs no terminal', async () => {
    const { code, json } = await run([...remove, '--yes', '--json'], service)
    expect([code, json]).toEqual([0, [{ Name: 'ACC-1' }]])
    expect((await run(['credentials', 'remove', 'ACC-2', '-y'], service)).code).toBe(3)
  })
})
