import { describe, expect, it } from 'vitest'
import { createResponseCheck, malformed, undocumented, unnamed } from './conformance.ts'

const thing = {
  type: 'object',
  required: ['id'],
  properties: { id: { $ref: '#/components/schemas/Id' } },
  additionalProperties: false,
}
const document = {
  paths: {
    '/things/{id}': {
      get: {
        responses: {
          200: { content: { 'application/json': { schema: thing } } },
          202: {},
          204: {},
        },
      },
      delete: { responses: { default: { content: { '*/*': {} } } } },
    },
    '/things/all': { get: { responses: { 200: { content: { 'text/csv': {} } } } } },
  },
  components: { schemas: { Id: { type: 'integer' } } },
}

const check = createResponseCheck(document)
const deviationOf = (line: string, response: Response): Promise<string | null> => {
  const [method = '', path = ''] = line.split(' ')
  return check(new Request(`http://127.0.0.1${path}`, { method }), response)
}
const csv = (status = 200) =>
  new Response('a,b', { status, headers: { 'Content-Type': 'text/csv; charset=utf-8' } })

describe('the check of responses against an OpenAPI document', () => {
  it.each([
    ['with the documented body', 'GET /things/1', Response.json({ id: 1 })],
    [
      'without a body where none is documented',
      'GET /things/1',
      new Response(null, { status: 204 }),
    ],
    ['without a body for HEAD', 'HEAD /things/1', new Response(null)],
    ['at a literal path that also matches a path with a variable', 'GET /things/all', csv()],
    ['with any body where the document allows any body', 'DELETE /things/1', csv(418)],
    ['with 405, which states that there is no such operation', 'PUT /things/1', csv(405)],
    ['with 404 at an undocumented path', 'GET /nothing', csv(404)],
  ])('the OpenAPI check accepts a response %s', async (_, line, response) => {
    expect(await deviationOf(line, response)).toBeNull()
  })
})

describe('the check of responses that deviate from an OpenAPI document', () => {
  it.each([
    ['with another status', 'GET /things/1', csv(418), 'the status is not documented'],
    ['with another content type', 'GET /things/1', csv(), '"text/csv" is not documented'],
    ['with a missing member', 'GET /things/1', Response.json({}), "required property 'id'"],
    ['with an additional member', 'GET /things/1', Response.json({ id: 1, x: 1 }), 'additional'],
    ['with a member of another type', 'GET /things/1', Response.json({ id: 'a' }), 'body/id'],
    [
      'with a body where none is documented',
      'GET /things/1',
      csv(202),
      '"text/csv" is not documented',
    ],
    ['without the documented body', 'GET /things/1', new Response(null), 'body is missing'],
    ['at an undocumented path', 'GET /nothing', csv(), 'no such operation'],
  ])('the OpenAPI check reports a response %s', async (_, line, response, what) => {
    expect(await deviationOf(line, response)).toContain(what)
  })
})

describe('the comparison of routes with an OpenAPI document', () => {
  const routes = [
    { method: 'ALL', path: '/*' },
    { method: 'GET', path: '/things/:id{[0-9]+}' },
    { method: 'DELETE', path: '/things/:id' },
    { method: 'GET', path: '/things/all' },
  ]

  it('the comparison of routes with an OpenAPI document ignores routes of middleware', () => {
    expect(undocumented(routes, document)).toEqual([])
  })

  it('the comparison with an OpenAPI document reports an undocumented route, and an operation without a route', () => {
    expect(
      undocumented([...routes.slice(0, 3), { method: 'PUT', path: '/new' }], document),
    ).toEqual(['PUT /new is served, not documented', 'GET /things/all is documented, not served'])
  })
})

describe('the check of names in an OpenAPI document', () => {
  const named = (...operationIds: string[]) =>
    Object.fromEntries(
      operationIds.map((operationId, index) => [
        `/${index}`,
        { get: { operationId, responses: {} } },
      ]),
    )
  const components = { schemas: { Thing: thing } }

  it('the check of names in an OpenAPI document accepts operations and schemas with explicit, unique names', () => {
    expect(unnamed({ paths: named('listThings', 'getThing'), components })).toEqual([])
  })

  it.each([
    ['an operation with a derived name', 'getThingsById', 'GET /1 needs a name'],
    ['an operation without a name', '', 'GET /1 needs a name'],
    ['two operations with the same name', 'getThing', 'GET /1 has the name "getThing" of another'],
  ])('the check of names in an OpenAPI document reports %s', (_, name, what) => {
    const found = unnamed({ paths: named('getThing', name), components })
    expect(found).toEqual([expect.stringContaining(what)])
  })

  it('the check of names in an OpenAPI document reports a schema whose name is a number', () => {
    const schemas = { __schema0: thing }
    expect(unnamed({ paths: {}, components: { schemas } })).toEqual([
      'the schema "__schema0" needs a name',
    ])
  })
})

describe('the check of schemas in an OpenAPI document', () => {
  it('the check of schemas in an OpenAPI document accepts valid JSON Schemas', () => {
    expect(malformed(document)).toEqual([])
  })

  it('the check of schemas in an OpenAPI document reports each named schema and response schema that is not valid', () => {
    const schema = { type: 'text' }
    expect(
      malformed({
        paths: {
          '/things': {
            get: { responses: { 200: { content: { 'application/json': { schema } } } } },
          },
        },
        components: { schemas: { Id: schema } },
      }),
    ).toEqual([
      'the schema of Id is not a valid JSON Schema',
      'the schema of GET /things 200 is not a valid JSON Schema',
    ])
  })
})
