import { readFileSync } from 'node:fs'
import { z } from 'zod'
import { Secret } from '../secrets/secret.ts'
import { tlsProblems } from '../tls/tls-files.ts'
import { parseKeyRing } from '../secrets/envelope.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/**
 * The error that lists all wrong or missing settings in one message. The message contains their names, but not their
 * values.
 */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  /** One line for each wrong or missing setting. */
  readonly problems: readonly string[]

  constructor(problems: readonly string[]) {
    super(['The settings are not usable:', ...problems.map((line) => `  ${line}`)].join('\n'))
    this.problems = problems
  }
}

/** The settings in the environment, of which some may be wrong or missing. */
export interface ReadSettings<Settings> {
  /** All settings; `null` if one of them is wrong or missing. */
  readonly settings: Settings | null
  /** The settings that are valid. An unset setting has its default. */
  readonly valid: Partial<Settings>
  /** One line for each wrong or missing setting. The caller may add further lines. */
  readonly problems: string[]
}

/**
 * Reads settings from the environment. An empty variable counts as unset. `X_FILE` names a file whose content becomes
 * the value of `X`; one trailing newline is removed. If the name of a setting itself ends in `_FILE`, its value is a
 * path and remains a path. The files of the TLS settings in the schema are checked as well.
 *
 * @throws {ConfigError} if a setting is wrong or missing; the message names all such settings.
 */
export function parseConfig<Shape extends z.ZodObject>(
  schema: Shape,
  env: Environment,
): z.output<Shape> {
  const { settings, problems } = readSettings(schema, env)
  if (settings === null || problems.length > 0) throw new ConfigError(problems)
  return settings
}

/**
 * Reads settings as `parseConfig` does, but returns the problems instead of throwing them, so that a caller with further
 * checks can report all problems in one message.
 */
export function readSettings<Shape extends z.ZodObject>(
  schema: Shape,
  env: Environment,
): ReadSettings<z.output<Shape>> {
  const problems: string[] = []
  const values: Record<string, string> = {}
  for (const name of Object.keys(schema.shape)) {
    const value =
      name === 'SERVICE_API_KEY' ? readServiceKeys(env, problems) : readSetting(name, env, problems)
    if (value !== undefined) values[name] = value
  }
  problems.push(...tlsProblems(schema.shape, values))
  const parsed = schema.safeParse(values)
  for (const issue of parsed.error?.issues ?? []) {
    const name = issue.path.map(String).join('.')
    if (problems.some((line) => line.startsWith(`${name}_FILE`))) continue
    const isMissing = name in schema.shape && values[name] === undefined
    problems.push(`${name || 'settings'}: ${isMissing ? 'is missing' : issue.message}`)
  }
  return {
    settings: parsed.data ?? null,
    valid: parsed.data ?? validSettings(schema, values),
    problems,
  }
}

function validSettings<Shape extends z.ZodObject>(
  schema: Shape,
  values: Readonly<Record<string, string>>,
): Partial<z.output<Shape>> {
  const shape: Readonly<Record<string, z.core.$ZodType>> = schema.shape
  const valid = Object.entries(shape).flatMap(([name, setting]) => {
    const { success, data } = z.safeParse(setting, values[name])
    return success ? [[name, data] as const] : []
  })
  // TypeScript widens the names to `string`. Each value is the output of the schema of its name.
  return Object.fromEntries(valid) as Partial<z.output<Shape>>
}

/**
 * The settings that many programs read. Their names in lower case take precedence, as in Node's own support of forward
 * proxies.
 */
const IN_LOWER_CASE = new Set(['HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY'])

function readSetting(name: string, env: Environment, problems: string[]): string | undefined {
  const lowerCase = IN_LOWER_CASE.has(name) ? env[name.toLowerCase()] : undefined
  const direct = lowerCase || env[name] || undefined
  const file = name.endsWith('_FILE') ? undefined : env[`${name}_FILE`] || undefined
  if (file === undefined) return direct
  if (direct !== undefined) {
    problems.push(`${name}_FILE: is set beside ${name}; keep one`)
    return undefined
  }
  try {
    const content = readFileSync(file, 'utf8').replace(/\r?\n$/, '')
    if (content !== '') return content
    problems.push(`${name}_FILE: the file is empty`)
  } catch (error) {
    problems.push(
      `${name}_FILE: the file cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`,
    )
  }
  return undefined
}

// SERVICE_API_KEY is the only setting with two names, singular and plural. The values of both are joined into one list
// (see serviceKeys).
function readServiceKeys(env: Environment, problems: string[]): string | undefined {
  const found = ['SERVICE_API_KEY', 'SERVICE_API_KEYS'].map((name) =>
    readSetting(name, env, problems),
  )
  return found.filter((list) => list !== undefined).join(',') || undefined
}

/** A secret setting, which is wrapped in a `Secret` as soon as it is read. */
export const secret = (minLength = 1) =>
  z
    .string()
    .min(minLength, `must have at least ${minLength} characters`)
    .transform((value) => new Secret(value))

/** An integer setting. The whole text must be digits, because `parseInt` would accept `7216abc`. */
export const integer = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().min(min, `must be at least ${min}`).max(max, `must be at most ${max}`))

/** A setting that is `on` or `off`. `initial` is the value if the setting is unset. */
export const onOff = (initial: 'on' | 'off' = 'off') =>
  z
    .enum(['on', 'off'], 'must be on or off')
    .default(initial)
    .transform((value) => value === 'on')

/** A duration in seconds, with an optional fraction. */
export const seconds = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,9}(\.\d{1,3})?$/, 'must be a number of seconds')
    .transform(Number)
    .pipe(z.number().min(min, `must be at least ${min}`).max(max, `must be at most ${max}`))

/** A number of days, with an optional fraction. */
export const days = () =>
  z
    .string()
    .regex(/^\d{1,5}(\.\d{1,9})?$/, 'must be a number of days')
    .transform(Number)
    .pipe(z.number().max(36_500, 'must be at most 36500'))

/** An absolute `http(s)` URL without credentials, query or fragment. A trailing slash is removed. */
export const httpUrl = () =>
  z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }).transform((value, context) => {
    const url = new URL(value)
    if (url.username || url.password || url.search || url.hash) {
      context.addIssue({ code: 'custom', message: 'must have no credentials, query or fragment' })
      return z.NEVER
    }
    return url.href.replace(/(?<!\/)\/+$/, '')
  })

/**
 * A URL that is used exactly as written. The service fetches it, or the provider compares it as text, so parsing must
 * not change it.
 */
export const exactUrl = () =>
  z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    // `when` skips this refinement if the preceding format check has failed. Otherwise `new URL` would throw in the
    // refinement.
    .refine(isNormal, {
      error: 'must be in its normal form: lower-case host, a path, no credentials, no fragment',
      when: ({ issues }) => issues.length === 0,
    })

function isNormal(value: string): boolean {
  const url = new URL(value)
  return url.href === value && url.username === '' && url.password === '' && url.hash === ''
}

/** The address of a backend. The address is a secret, because it may contain a password. */
export const backendUrl = (protocol: RegExp, example: string) =>
  z
    .url({ protocol, error: `must be a URL like ${example}` })
    .transform((value) => new Secret(value))

export const logLevels = ['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const

/** `HOST`, `PORT` and `LOG_LEVEL`, which every service has. */
export const listenSettings = (defaultPort: number) => ({
  HOST: z.string().default('127.0.0.1'),
  PORT: integer(0, 65_535).default(defaultPort),
  LOG_LEVEL: z.enum(logLevels).default('info'),
})

/** A comma-separated list of secrets. Each is printable ASCII without spaces, as `form` says, and counts once. */
const secretList = (form: RegExp, minLength: number) =>
  z
    .string()
    .transform((list) => [...new Set(list.split(',').map((each) => each.trim()))])
    .pipe(
      z.array(
        z.string().regex(form, `must be ${minLength} to 512 printable characters without spaces`),
      ),
    )
    .transform((secrets) => secrets.map((each) => new Secret(each)) as [Secret, ...Secret[]])

/**
 * The keys that callers may present: `SERVICE_API_KEY` and the comma-separated list `SERVICE_API_KEYS`. Several keys
 * can be valid at the same time, so that a new key can be distributed before the old one is removed. A service calls
 * its peers with the first key.
 */
export const serviceKeys = () => secretList(/^[\x21-\x7e]{32,512}$/, 32)

/**
 * The setting `WEBHOOK_VERIFIER_TOKENS`: the verifier tokens of the application at the provider, as a comma-separated
 * list. During a rotation both the old and the new token are configured. Intuit issues one token for each application
 * and environment.
 */
export const verifierTokens = () =>
  secretList(/^[\x21-\x7e]{16,512}$/, 16).refine(
    (tokens) => tokens.length <= 10,
    'must have at most 10 tokens',
  )

/** A setting that holds a key ring, such as `CREDENTIAL_KEYS`. The error for a wrong entry does not contain the key. */
export const keyRing = () =>
  secret().transform((list, context) => {
    try {
      return parseKeyRing(list)
    } catch (error) {
      const why = error instanceof TypeError ? error.message : 'is not a key ring'
      context.addIssue({ code: 'custom', message: why })
      return z.NEVER
    }
  })
