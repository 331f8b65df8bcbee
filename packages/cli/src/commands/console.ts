/** The commands by which persons get access to the web console. */
import { isUserName, userLine } from '@integration-host/shared/access/user-line'
import { roles } from '@integration-host/shared/access/scope'
import { z } from 'zod'
import { type Command, expectNone, parse, validOption } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { openConsole } from '../service-api.ts'
import { createTable, isInteractive, notify, print } from '../terminal.ts'
import { promptTwice, readSecretFile } from '../transfer-secret.ts'

const SignInLink = z.object({ Url: z.string(), ExpiresAt: z.string() })
const MIN_LENGTH = 12

export const makeSignInLink: Command = {
  summary: 'make a link that signs an operator in once',
  usage: '',
  help: `Prints a link to the console, which signs an operator in once, within ten minutes. The console must accept links (SIGN_IN).
The service key must be one of SERVICE_API_KEY(S) of the console.

  --url URL    the address of the console (default CONSOLE_URL, else http://127.0.0.1:7221)

Examples:
  integration-host console sign-in`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {})
    expectNone(positionals)
    const link = await openConsole(values.url, terminal).post('/sign-in-links', {}, SignInLink)
    notify(terminal, `The link works once, until ${link.ExpiresAt}:`)
    await print(terminal, values.json ? JSON.stringify(link) : link.Url)
    return exitCodes.ok
  },
}

const AllSessions = z.object({
  Sessions: z.array(
    z.object({
      User: z.string(),
      Role: z.string(),
      Way: z.string(),
      Browser: z.string(),
      UsedAt: z.string(),
      ExpiresAt: z.string(),
    }),
  ),
})
const EndedSessions = z.object({ Ended: z.number() })

export const manageSessions: Command = {
  summary: 'list the sessions of all persons, or end those of one',
  usage: 'list | end --user NAME',
  help: `Lists the sessions of all persons at the console, the last used first, or ends all sessions of one person.
The service key must be one of SERVICE_API_KEY(S) of the console.

  --user NAME  the person whose sessions end, as the list names it
  --url URL    the address of the console (default CONSOLE_URL, else http://127.0.0.1:7221)

Examples:
  integration-host console sessions list
  integration-host console sessions end --user eve`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, { user: { type: 'string' } })
    const [action, ...rest] = positionals
    expectNone(rest)
    if (action === 'list' && values.user === undefined) {
      const api = openConsole(values.url, terminal)
      const { Sessions } = await api.get('/sessions', AllSessions)
      const table = createTable(['USER', 'ROLE', 'WAY', 'BROWSER', 'LAST USE', 'ENDS'])
      const lines = values.json
        ? Sessions.map((session) => JSON.stringify(session))
        : table(
            Sessions.map(({ User, Role, Way, Browser, UsedAt, ExpiresAt }) => [
              User,
              Role,
              Way,
              Browser,
              UsedAt,
              ExpiresAt,
            ]),
          )
      await print(terminal, ...lines)
      return exitCodes.ok
    }
    if (action !== 'end' || !values.user)
      throw new UsageError('Say what to do: list, or end --user NAME')
    const path = `/sessions?user=${encodeURIComponent(values.user)}`
    const console = openConsole(values.url, terminal)
    const { data: ended } = await console.send(path, EndedSessions, { method: 'DELETE', body: {} })
    await print(terminal, values.json ? JSON.stringify(ended) : `Sessions ended: ${ended.Ended}`)
    return exitCodes.ok
  },
}

export const makePassword: Command = {
  summary: 'make a line of the users file of the console',
  usage: 'NAME [--role ROLE] [--password-file FILE]',
  help: `Prints the line of USERS_FILE for a person, with the hash of a password. Append it to the file, which the console reads again within a second.
It calls no service.

  --role ROLE            viewer (sees everything but data) or operator (can also act); default viewer
  --password-file FILE   holds the password, at least ${MIN_LENGTH} characters; without it the password is prompted for

Examples:
  (umask 077; integration-host console password ada --role operator >> users)`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      role: { type: 'string' },
      'password-file': { type: 'string' },
    })
    const [name = '', ...rest] = positionals
    expectNone(rest)
    if (values.url !== undefined)
      throw new UsageError('console password calls no service, so it has no option --url')
    if (!isUserName(name))
      throw new UsageError('A name is needed: 1 to 100 letters, digits and . @ _ + -')
    const role = validOption('--role', z.enum(roles), values.role ?? 'viewer')
    const file = values['password-file']
    if (file === undefined && !isInteractive(terminal))
      throw new UsageError('A password is needed: --password-file')
    const password =
      file === undefined
        ? await promptTwice(terminal, 'Password')
        : await readSecretFile('--password-file', file)
    if (password.reveal().length < MIN_LENGTH)
      throw new UsageError(`The password must have at least ${MIN_LENGTH} characters`)
    const line = await userLine(name, role, password.reveal())
    await print(terminal, values.json ? JSON.stringify({ line }) : line)
    return exitCodes.ok
  },
}
