import { describe, expect, it } from 'vitest'
import { createAnswerCheck, undocumented } from './document.ts'

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

const check = createAnswerCheck(document)
const answered = (line: string, answer: Response): Promise<string | null> => {
  const [method = '', path = ''] = line.split(' ')
  return check(new Request(`http://127.0.0.1${path}`, { method }), answer)
}
const csv = (status = 200) =>
  new Response('a,b', { status, headers: { 'Content-Type': 'text/csv; charset=utf-8' } })

describe('an answer is as documented', () => {
  it.each([
    ['with the documented body', 'GET /things/1', Response.json({ id: 1 })],
    [
      'without a body where none is documented',
      'GET /things/1',
      new Response(null, { status: 204 }),
    ],
    ['without a body to HEAD', 'HEAD /things/1', new Response(null)],
    ['at the literal path before the one with a variable', 'GET /things/all', csv()],
    ['with anything where anything is documented', 'DELETE /things/1', csv(418)],
    ['with 405, which says that there is no such operation', 'PUT /things/1', csv(405)],
    ['with a refusal of what is not documented', 'GET /nothing', csv(404)],
  ])('%s', async (_, line, answer) => {
    expect(await answered(line, answer)).toBeNull()
  })
})

describe('an answer is not as documented', () => {
  it.each([
    ['with another status', 'GET /things/1', csv(418), 'the status is not documented'],
    ['with another content type', 'GET /things/1', csv(), '"text/csv" is not documented'],
    ['with a member too few', 'GET /things/1', Response.json({}), "required property 'id'"],
    ['with a member too many', 'GET /things/1', Response.json({ id: 1, x: 1 }), 'additional'],
    ['with a member of another type', 'GET /things/1', Response.json({ id: 'a' }), 'body/id'],
    [
      'with a body where none is documented',
      'GET /things/1',
      csv(202),
      '"text/csv" is not documented',
    ],
    ['without the documented body', 'GET /things/1', new Response(null), 'body is missing'],
    ['when nothing is documented there', 'GET /nothing', csv(), 'no such operation'],
  ])('%s', async (_, line, answer, what) => {
    expect(await answered(line, answer)).toContain(what)
  })
})

describe('a document and the routes', () => {
  const routes = [
    { method: 'ALL', path: '/*' },
    { method: 'GET', path: '/things/:id{[0-9]+}' },
    { method: 'DELETE', path: '/things/:id' },
    { method: 'GET', path: '/things/all' },
  ]

  it('are the same, middleware aside', () => {
    expect(undocumented(routes, document)).toEqual([])
  })

  it('differ by a route that is not documented, and by an operation that no route has', () => {
    expect(
      undocumented([...routes.slice(0, 3), { method: 'PUT', path: '/new' }], document),
    ).toEqual(['PUT /new is served, not documented', 'GET /things/all is documented, not served'])
  })
})
