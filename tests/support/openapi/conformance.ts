/** Compares the OpenAPI document of a service with the routes and responses of the service. */
import { publicPath } from '@integration-host/shared/http/openapi'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'

export interface OpenApiDocument {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas?: Readonly<Record<string, object>> }
}
interface Operation {
  readonly operationId?: string
  readonly responses: Readonly<Record<string, { readonly content?: Content }>>
}
type Content = Readonly<Record<string, { readonly schema?: object }>>

/** A route of the Hono router. Middleware is registered with the method `ALL`. */
interface Route {
  readonly method: string
  readonly path: string
}

/** Returns the routes that the document does not contain, and the documented operations that have no route. */
export function undocumented(routes: readonly Route[], { paths }: OpenApiDocument): string[] {
  const served = new Set(
    routes.flatMap(({ method, path }) =>
      method === 'ALL'
        ? []
        : [`${method} ${publicPath(path).replace(/:([^/{]+)(\{[^}]*\})?/g, '{$1}')}`],
    ),
  )
  const documented = new Set(
    Object.entries(paths).flatMap(([path, item]) =>
      Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
    ),
  )
  return [
    ...[...served]
      .filter((route) => !documented.has(route))
      .map((route) => `${route} is served, not documented`),
    ...[...documented]
      .filter((route) => !served.has(route))
      .map((route) => `${route} is documented, not served`),
  ]
}

/**
 * Returns problems with the names from which clients are generated: an operation without an explicit name, two
 * operations with the same name, or a schema whose name is a number. If a schema refers to itself, zod gives the schema
 * a number as its name, and client generators reject a number as a name.
 */
export function unnamed(document: OpenApiDocument): string[] {
  const ids = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, { operationId = '' }]) => ({
      id: operationId,
      route: `${method.toUpperCase()} ${path}`,
    })),
  )
  return [
    ...ids
      // hono-openapi derives a name such as `getThingsById` if an operation has no explicit name.
      .filter(({ id }) => !/^[a-z][A-Za-z]+$/.test(id) || /By[A-Z]/.test(id))
      .map(({ id, route }) => `${route} needs a name instead of "${id}"`),
    ...ids
      .filter(({ id }, index) => ids.findIndex((other) => other.id === id) !== index)
      .map(({ id, route }) => `${route} has the name "${id}" of another operation`),
    ...Object.keys(document.components.schemas ?? {})
      .filter((name) => !/^[A-Z][A-Za-z]*$/.test(name))
      .map((name) => `the schema "${name}" needs a name`),
  ]
}

/** Returns the response schemas and named schemas that are not valid JSON Schemas. */
export function malformed({ paths, components: { schemas = {} } }: OpenApiDocument): string[] {
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  const all = Object.entries(schemas)
  for (const [path, item] of Object.entries(paths))
    for (const [method, { responses }] of Object.entries(item))
      for (const [status, { content = {} }] of Object.entries(responses))
        for (const { schema } of Object.values(content))
          if (schema !== undefined) all.push([`${method.toUpperCase()} ${path} ${status}`, schema])
  return all
    .filter(([, schema]) => ajv.validateSchema(schema) !== true)
    .map(([name]) => `the schema of ${name} is not a valid JSON Schema`)
}

/**
 * Returns a function that checks a response against the document. The function returns a description of the
 * deviation; `null` if there is none.
 */
export function createResponseCheck(document: OpenApiDocument) {
  // The validator is not strict, because OpenAPI adds keywords to JSON Schema. It does not check formats, because the
  // schema also has a pattern where a format matters.
  const ajv = new Ajv2020({
    strict: false,
    validateFormats: false,
    allErrors: true,
    validateSchema: false, // the function `malformed` validates the schemas
    code: { optimize: false }, // optimizing the code of a validator takes longer than its few calls in a test
  })
  const validators = new Map<object, ValidateFunction>()
  const validatorOf = (schema: object): ValidateFunction => {
    const known = validators.get(schema)
    if (known !== undefined) return known
    const validator = ajv.compile({ ...schema, components: document.components })
    validators.set(schema, validator)
    return validator
  }
  const paths = Object.entries(document.paths)
    .map(([path, item]) => ({ pattern: patternOf(path), item, variables: path.split('{').length }))
    .toSorted((one, other) => one.variables - other.variables) // a literal path takes precedence over a path with variables

  const operationOf = (method: string, path: string): Operation | undefined =>
    paths
      .filter(({ pattern }) => pattern.test(path))
      .flatMap(({ item }) => item[(method === 'HEAD' ? 'GET' : method).toLowerCase()] ?? [])[0]

  return async (request: Request, response: Response): Promise<string | null> => {
    const { method, url } = request
    const { pathname } = new URL(url)
    const { status } = response
    const deviation = (what: string) => `${method} ${pathname} responded ${status}: ${what}`
    if (status === 405) return null // the operation does not exist
    const operation = operationOf(method, pathname)
    if (operation === undefined)
      return status >= 400 && status < 500 ? null : deviation('no such operation is documented')
    const documented = operation.responses[status] ?? operation.responses['default']
    if (documented === undefined) return deviation('the status is not documented')
    const { content = {} } = documented
    if (response.body === null)
      return method === 'HEAD' || Object.keys(content).every((type) => type === '*/*')
        ? null
        : deviation('the documented body is missing')
    const type = response.headers.get('Content-Type')?.split(';')[0]?.trim().toLowerCase() ?? ''
    const media = content[type] ?? content['*/*']
    if (media === undefined) return deviation(`"${type}" is not documented`)
    if (media.schema === undefined || !/^application\/(.+\+)?json$/.test(type)) return null
    const validator = validatorOf(media.schema)
    if (validator(await response.clone().json())) return null
    return deviation(ajv.errorsText(validator.errors, { dataVar: 'body' }))
  }
}

function patternOf(path: string): RegExp {
  const segments = path.split('/').map((segment) => {
    if (segment === '*') return '.*'
    return segment.startsWith('{') ? '[^/]+' : segment.replaceAll('.', '\\.')
  })
  return new RegExp(`^${segments.join('/')}$`)
}
