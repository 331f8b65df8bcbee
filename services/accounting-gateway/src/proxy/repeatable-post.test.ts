import { generic } from '@integration-host/shared/provider-profile/profiles'
import { intuit } from '@integration-host/shared/provider-profile/intuit'
import { describe, expect, it } from 'vitest'
import { createPostMarker } from './repeatable-post.ts'

const unmarked = { headers: [], addedKey: null }

describe('a POST with the provider profile intuit', () => {
  const mark = createPostMarker(intuit.accounting, () => 'r1')

  it.each([
    ['/x', '/x?requestid=r1'],
    ['/x?a=b', '/x?a=b&requestid=r1'],
    ['/x?', '/x?requestid=r1'],
    ['/x?a=b&', '/x?a=b&requestid=r1'],
    ['/x?a=?requestid=1', '/x?a=?requestid=1&requestid=r1'],
    ['/x?a=%', '/x?a=%&requestid=r1'],
    ['/x?myrequestid=abc', '/x?myrequestid=abc&requestid=r1'],
  ])('the gateway sends a POST to %s as %s and may repeat it', (path, sent) => {
    expect(mark({ path, headers: {} })).toEqual({
      path: sent,
      headers: [],
      addedKey: 'r1',
      isRepeatable: true,
    })
  })

  it.each(['/x', '/x?requestid=abc'])(
    'the gateway never repeats a POST to %s with Send-Once, and sends its requestid',
    (path) => {
      const marked = mark({ path, headers: { 'send-once': 'true' } })
      expect(marked.isRepeatable).toBe(false)
      expect(marked.path).toContain('requestid=')
    },
  )

  it.each(['/x?requestid=abc', '/x?a=b&requestid=abc'])(
    "the gateway keeps the caller's requestid of a POST to %s and may repeat the POST",
    (path) => {
      expect(mark({ path, headers: {} })).toEqual({ ...unmarked, path, isRepeatable: true })
    },
  )

  it.each([
    '/x?requestId=abc',
    '/x?RequestID=abc',
    '/x?%72equestid=abc',
    '/x?requestid=',
    '/x?requestid',
    '/x?requestid=&requestid=x',
    '/x?requestid=a&requestId=b',
  ])(
    'the gateway adds no requestid to a POST to %s and never repeats the POST, because Intuit does not document this spelling of requestid',
    (path) => {
      expect(mark({ path, headers: {} })).toEqual({ ...unmarked, path, isRepeatable: false })
    },
  )

  it('the gateway always derives the same requestid of at most 36 characters from the same Idempotency-Key', () => {
    const post = { path: '/x', headers: { 'idempotency-key': 'OrderProcess/7/0/order' } }
    const { addedKey, path } = mark(post)
    expect(mark(post).addedKey).toBe(addedKey)
    expect(addedKey).toMatch(/^[0-9a-f]{32}$/)
    expect(path).toBe(`/x?requestid=${addedKey}`)
  })

  it.each(['/v3/company/1/query', '/v3/company/1/query?minorversion=75'])(
    'the gateway may repeat a POST to %s without an idempotency key, because such a POST only reads data',
    (path) => {
      expect(mark({ path, headers: {} })).toEqual({ ...unmarked, path, isRepeatable: true })
    },
  )

  const path = '/v3/company/1/batch?minorversion=75'
  const batch = (...ids: readonly unknown[]) =>
    JSON.stringify({ BatchItemRequest: ids.map((bId) => ({ bId, operation: 'create' })) })
  const markBatch = createPostMarker(intuit.accounting, () => 'r'.repeat(36))
  const uuid = 'd0f7a0d6-0f0c-4c8e-9df5-3f1c6d1f7f10'

  it.each([
    ['ids of 14 characters', batch('1', 'x'.repeat(14))],
    ['a number as id', batch(7)],
    ['items without an id', JSON.stringify({ BatchItemRequest: [{}] })],
    ['no item', batch()],
    [
      '30,000 members',
      JSON.stringify({ BatchItemRequest: [{ bId: '1', Line: Array(30_000).fill(0) }] }),
    ],
    ['XML', `<IntuitBatchRequest><BatchItemRequest bId="bid1"/></IntuitBatchRequest>`],
  ])('the gateway adds a requestid to a batch with %s', (_, body) => {
    const marked = markBatch({ path, headers: {}, body: [Buffer.from(body)] })
    expect(marked).toMatchObject({
      path: `${path}&requestid=${'r'.repeat(36)}`,
      isRepeatable: true,
    })
  })

  it.each([
    ['one id of 15 characters', batch('1', 'x'.repeat(15))],
    ['a UUID as id', batch(uuid)],
    ['an id of characters outside ASCII', batch('ü'.repeat(10))],
    ['a long id under another spelling', JSON.stringify({ BatchItemRequest: [{ BID: uuid }] })],
    [
      'XML and a long id',
      `<IntuitBatchRequest><BatchItemRequest x='"' bId='${uuid}'/></IntuitBatchRequest>`,
    ],
    ['JSON that cannot be read', batch('1').slice(0, -1)],
    ['an empty body', ''],
  ])(
    'the gateway adds no requestid to a batch with %s and sends it once, because Intuit joins both',
    (_, body) => {
      const parts = [Buffer.from(body.slice(0, 30)), Buffer.from(body.slice(30))]
      expect(markBatch({ path, headers: {}, body: parts })).toEqual({
        ...unmarked,
        path,
        isRepeatable: false,
      })
    },
  )

  it('the gateway adds no requestid to a batch whose body it does not know', () => {
    expect(markBatch({ path, headers: {} })).toEqual({ ...unmarked, path, isRepeatable: false })
  })

  it('a requestid from an Idempotency-Key leaves 18 characters for the ids of a batch', () => {
    const headers = { 'idempotency-key': 'k' }
    const marked = (length: number) =>
      markBatch({ path, headers, body: [Buffer.from(batch('x'.repeat(length)))] }).addedKey
    expect([marked(18), marked(19)]).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), null])
  })

  it("the gateway keeps the caller's requestid of a batch, however long its ids are", () => {
    const own = '/v3/company/1/batch?requestid=abc'
    const marked = markBatch({ path: own, headers: {}, body: [Buffer.from(batch(uuid))] })
    expect(marked).toEqual({ ...unmarked, path: own, isRepeatable: true })
  })

  it('the gateway adds a requestid to a POST for an entity whose name begins with query', () => {
    expect(mark({ path: '/v3/company/1/querylog', headers: {} }).addedKey).toBe('r1')
  })
})

describe('a POST with the provider profile generic', () => {
  const mark = createPostMarker(generic.accounting, () => 'r1')

  it.each(['/x', '/x?requestid=abc', '/v3/company/1/query'])(
    'the gateway sends a POST to %s unchanged and never repeats it, because the profile has no idempotency key',
    (path) => {
      const headers = { 'idempotency-key': 'k' }
      expect(mark({ path, headers })).toEqual({ ...unmarked, path, isRepeatable: false })
    },
  )
})

describe('a POST with a provider profile whose idempotency key is a header', () => {
  const rules = {
    repeatablePost: { in: 'header', name: 'X-Request-Key' },
    isReadingPost: () => false,
  } as const
  const mark = createPostMarker(rules, () => 'r1')

  it('the gateway adds the idempotency key header to a POST, so that it may repeat the POST', () => {
    expect(mark({ path: '/x', headers: {} })).toEqual({
      path: '/x',
      headers: ['X-Request-Key', 'r1'],
      addedKey: 'r1',
      isRepeatable: true,
    })
  })

  it('the gateway sends the idempotency key header of the caller unchanged', () => {
    const post = { path: '/x', headers: { 'x-request-key': 'mine' } }
    expect(mark(post)).toEqual({ ...unmarked, path: '/x', isRepeatable: true })
  })
})
