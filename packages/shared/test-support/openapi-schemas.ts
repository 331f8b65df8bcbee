import { loadVendor, resolver } from 'hono-openapi'
import { toJSONSchema, type ZodType } from 'zod'

type ToJsonSchema = NonNullable<Parameters<typeof loadVendor>[1]['toJSONSchema']>

/** A zod schema under the name of another library, so that hono-openapi itself converts it. */
interface Renamed {
  readonly '~standard': ZodType['~standard']
  readonly schema: ZodType
}
const VENDOR = 'zod-once'
const renamed = (schema: ZodType): Renamed => ({
  '~standard': { ...schema['~standard'], vendor: VENDOR },
  schema,
})

/** The converted schemas as JSON, by their options. The functions in the options are always the same. */
const converted = new WeakMap<ZodType, Map<string, string>>()

/**
 * Makes this process convert each zod schema to its OpenAPI form only once. A service converts the schemas of its routes
 * when its OpenAPI document is first read. A process of tests creates the same services hundreds of times, and each
 * document would otherwise take as much processor time as a test.
 */
export function convertSchemasOnce(): void {
  loadVendor(VENDOR, {
    toJSONSchema: (given, options) =>
      toJSONSchema((given as Renamed).schema, options) as ReturnType<ToJsonSchema>,
  })

  loadVendor('zod', {
    async toOpenAPISchema(given, { components, options }) {
      const schema = given as ZodType
      const known = converted.get(schema) ?? new Map<string, string>()
      converted.set(schema, known)
      const key = JSON.stringify(options)
      const json =
        known.get(key) ??
        JSON.stringify(
          await resolver(renamed(schema)).toOpenAPISchema({ options: { io: 'input', ...options } }),
        )
      known.set(key, json)
      // The caller changes what it gets.
      const result = JSON.parse(json)
      Object.assign(components, result.components)
      return result.schema
    },
  })
}
