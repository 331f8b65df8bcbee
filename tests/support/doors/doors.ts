/**
 * The doors of a service: every route that its OpenAPI document describes, and requests for them that differ from each
 * other in query, body, headers and cookies.
 */

interface Schema {
  readonly $ref?: string
  readonly type?: string | readonly string[]
  readonly const?: unknown
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly Schema[]
  readonly oneOf?: readonly Schema[]
  readonly allOf?: readonly Schema[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly items?: Schema
  readonly format?: string
  readonly minimum?: number
  readonly minLength?: number
  readonly pattern?: string
}
interface Parameter {
  readonly name: string
  readonly in: string
  readonly schema?: Schema
}
interface Operation {
  readonly security?: readonly unknown[]
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: {
    readonly content?: Readonly<Record<string, { readonly schema?: Schema }>>
  }
}
interface OpenApi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components?: { readonly schemas?: Readonly<Record<string, Schema>> }
}

export interface Door {
  readonly method: string
  /** The path as the document has it, such as `/connect/{ticket}`. */
  readonly path: string
  readonly needsKey: boolean
  readonly parameters: readonly Pick<Parameter, 'name' | 'in'>[]
  /** Returns request number `n`. Two requests with different numbers differ. */
  request(n: number): DoorRequest
}
export interface DoorRequest {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** Values that a client without a key may know, by the name of a parameter, member or cookie, such as a valid ticket. */
export type KnownValues = Readonly<Record<string, readonly string[]>>

/** Reads the document of the service at `url`, and returns its doors. */
export async function doorsOf(url: string, known: KnownValues): Promise<readonly Door[]> {
  const document = (await (await fetch(`${url}/openapi.json`)).json()) as OpenApi
  return Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      needsKey: operation.security !== undefined,
      parameters: operation.parameters ?? [],
      request: (n: number) => requestOf({ method, path, operation, document, url, known }, n),
    })),
  )
}

interface Described {
  readonly method: string
  readonly path: string
  readonly operation: Operation
  readonly document: OpenApi
  readonly url: string
  readonly known: KnownValues
}

/** Every fourth request has texts of this length, if the door accepts texts of any length. */
const LONG = 1_500

function requestOf(
  { method, path, operation, document, url, known }: Described,
  n: number,
): DoorRequest {
  // The four kinds take turns: as documented, with long texts, as a program without browser headers, and malformed.
  const kind = n % 4
  const { host, origin } = new URL(url)
  const value = (name: string, schema: Schema = {}): string => {
    const values = known[name]
    // Three in four values are known ones, so that a request gets past the look-up of its subject.
    if (values !== undefined && n % 4 !== 3) return values[n % values.length] ?? ''
    return String(sample(document, schema, n, kind, name))
  }
  const parameters = operation.parameters ?? []
  const filled = path.replaceAll(/\{([^}]+)\}/g, (_, name: string) =>
    encodeURIComponent(value(name, parameters.find((one) => one.name === name)?.schema)),
  )
  const query = new URLSearchParams()
  for (const { name, in: place, schema } of parameters)
    if (place === 'query' && (n + name.length) % 3 !== 0) query.set(name, value(name, schema))
  // Parameters that the document does not name.
  for (const [name, values] of Object.entries(known))
    if (!query.has(name) && n % 2 === 0) query.set(name, values[n % values.length] ?? '')
  if (kind === 1) query.set(`q${n}`, 'x'.repeat(LONG))
  const cookies = Object.entries(known)
    .filter(([name]) => name.startsWith('cookie:'))
    .map(([name, values]) => `${name.slice(7)}=${values[n % values.length]}`)
  const content = Object.entries(operation.requestBody?.content ?? {})
  const [type = 'application/json', described] = content[n % Math.max(1, content.length)] ?? []
  const hasBody = method !== 'get'
  const body = !hasBody
    ? ''
    : kind === 3
      ? `{"broken${n}": [`
      : type.includes('json')
        ? JSON.stringify(sample(document, described?.schema ?? {}, n, kind, 'body'))
        : new URLSearchParams({ ...Object.fromEntries(query), n: String(n) }).toString()
  return {
    method: method === 'get' && n % 10 === 9 ? 'HEAD' : method.toUpperCase(),
    path: query.size > 0 ? `${filled}?${query.toString()}` : filled,
    body,
    headers: {
      Host: host,
      Accept: n % 2 === 0 ? 'text/html' : 'application/json',
      'User-Agent': `Browser/${n}`,
      'X-Forwarded-For': `198.51.${(n >> 8) % 256}.${n % 256}`,
      'X-Request-Id': `request-${n}`,
      'Idempotency-Key': `key-${n}-00000000`,
      traceparent: `00-${n.toString(16).padStart(32, '1')}-${n.toString(16).padStart(16, '1')}-01`,
      ...(kind !== 2 && {
        Origin: origin,
        'Sec-Fetch-Site': 'same-origin',
        'Sec-Fetch-Dest': 'document',
        Cookie: [...cookies, `own=${n}`].slice(n % 5 === 0 ? 0 : -3).join('; '),
      }),
      ...(kind === 3 && { Authorization: `Bearer made-up-key-${n}-${'0'.repeat(32)}` }),
      ...(hasBody && { 'Content-Type': type, 'Content-Length': String(Buffer.byteLength(body)) }),
    },
  }
}

/** Returns a value of a schema. Its texts and numbers differ for each `n`. */
function sample(document: OpenApi, schema: Schema, n: number, kind: number, name: string): unknown {
  const inner = (one: Schema, of = name): unknown => sample(document, one, n, kind, of)
  if (schema.$ref !== undefined) {
    const target = document.components?.schemas?.[schema.$ref.split('/').at(-1) ?? '']
    return target === undefined ? {} : inner(target)
  }
  if (schema.const !== undefined) return schema.const
  if (schema.enum !== undefined) return schema.enum[n % schema.enum.length]
  const choices = schema.anyOf ?? schema.oneOf
  if (choices !== undefined) return inner(choices[n % choices.length] ?? {})
  if (schema.allOf !== undefined)
    return Object.assign({}, ...schema.allOf.map((one) => inner(one) as object)) as unknown
  const implied = schema.properties === undefined ? 'string' : 'object'
  switch ([schema.type ?? implied].flat()[0] ?? implied) {
    case 'object':
      return Object.fromEntries(
        Object.entries(schema.properties ?? {}).map(([key, one]) => [key, inner(one, key)]),
      )
    case 'array':
      return [inner(schema.items ?? {})]
    case 'integer':
    case 'number':
      return Math.max(schema.minimum ?? 0, 0) + n
    case 'boolean':
      return n % 2 === 0
    case 'null':
      return null
    default:
      return textOf(schema, n, kind)
  }
}

function textOf({ format, minLength = 0, pattern = '' }: Schema, n: number, kind: number): string {
  if (format === 'uri') return `http://127.0.0.1/${n}`
  if (format === 'date-time') return new Date(1_700_000_000_000 + n).toISOString()
  const isNumeric = /^\^?\\d|^\^?\[0-9\]/.test(pattern)
  const text = isNumeric ? `${1_000_000_000 + n}` : `text-${n}`
  return kind === 1 && pattern === '' ? text.padEnd(LONG, 'x') : text.padEnd(minLength, 'x')
}
