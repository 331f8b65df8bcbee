/** The commands by which persons get access to the web console. */
import { isUserName, userLine } from '@integration-host/shared/access/user-line'
import { roles } from '@integration-host/shared/access/scope'
import { z } from 'zod'
import { defineCommand, expectNone, texts, validOption } from '../command.ts'
import { UsageError } from '../exit-code.ts'
import { openConsole } from '../service-api.ts'
import { type Columns, createTable, isInteractive, notify, print } from '../terminal.ts'
import { promptTwice, readSecretFile } from '../transfer-secret.ts'

const SignInLink = z.object({ Url: z.string(), ExpiresAt: z.string() })
const MIN_LENGTH = 12

export const makeSignInLink = defineCommand({
  summary: 'make a link that signs an operator in once',
  usage: '',
  help: `Prints a link to the console, which signs an operator in once, within ten minutes. The console must accept links (SIGN_IN).
The service key must be one of SERVICE_API_KEY(S) of the console.

  --url URL    the address of the console (default CONSOLE_URL, else http://127.0.0.1:7221)

Examples:
  integration-host console sign-in`,
  async run({ values, terminal, output }) {
    const link = await openConsole(values.url, terminal).post('/sign-in-links', {}, SignInLink)
    notify(terminal, `The link works once, until ${link.ExpiresAt}:`)
    await output(link, link.Url)
  },
})

const Session = z.object({
  User: z.string(),
  Role: z.string(),
  Way: z.string(),
  Browser: z.string(),
  UsedAt: z.string(),
  ExpiresAt: z.string(),
})
const AllSessions = z.object({ Sessions: z.array(Session) })
const EndedSessions = z.object({ Ended: z.number() })

const columns: Columns<z.output<typeof Session>> = {
  USER: 'User',
  ROLE: 'Role',
  WAY: 'Way',
  BROWSER: 'Browser',
  'LAST USE': 'UsedAt',
  ENDS: 'ExpiresAt',
}

export const manageSessions = defineCommand({
  summary: 'list the sessions of all persons, or end those of one',
  usage: 'list | end --user NAME',
  help: `Lists the sessions of all persons at the console, the last used first, or ends all sessions of one person.
The service key must be one of SERVICE_API_KEY(S) of the console.

  --user NAME  the person whose sessions end, as the list names it
  --url URL    the address of the console (default CONSOLE_URL, else http://127.0.0.1:7221)

Examples:
  integration-host console sessions list
  integration-host console sessions end --user eve`,
  options: texts('user'),
  argumentOf([action, ...others]) {
    expectNone(others)
    return action
  },
  async run({ values, argument: action, terminal, output }) {
    if (action === 'list' && values.user === undefined) {
      const api = openConsole(values.url, terminal)
      const { Sessions } = await api.get('/sessions', AllSessions)
      const lines = values.json
        ? Sessions.map((session) => JSON.stringify(session))
        : createTable(columns)(Sessions)
      return print(terminal, ...lines)
    }
    if (action !== 'end' || !values.user)
      throw new UsageError('Say what to do: list, or end --user NAME')
    const path = `/sessions?user=${encodeURIComponent(values.user)}`
    const console = openConsole(values.url, terminal)
    const { data: ended } = await console.send(path, EndedSessions, { method: 'DELETE', body: {} })
    return output(ended, `Sessions ended: ${ended.Ended}`)
  },
})

export const makePassword = defineCommand({
  summary: 'make a line of the users file of the console',
  usage: 'NAME [--role ROLE] [--password-file FILE]',
  help: `Prints the line of USERS_FILE for a person, with the hash of a password. Append it to the file, which the console reads again within a second.
It calls no service.

  --role ROLE            viewer (sees everything but data) or operator (can also act); default viewer
  --password-file FILE   holds the password, at least ${MIN_LENGTH} characters; without it the password is prompted for

Examples:
  (umask 077; integration-host console password ada --role operator >> users)`,
  options: texts('role', 'password-file'),
  argumentOf([name = '', ...others]) {
    expectNone(others)
    return name
  },
  async run({ values, argument: name, terminal, output }) {
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
    await output({ line }, line)
  },
})
