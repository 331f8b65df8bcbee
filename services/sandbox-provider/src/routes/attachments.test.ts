import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type ProviderFixture, REALM, startProvider } from '../../test-support/provider-fixture.ts'

let provider: ProviderFixture
let accessToken: string

beforeAll(async () => {
  provider = await startProvider()
})
beforeEach(async () => {
  await provider.sandbox('POST', 'reset')
  accessToken = (await provider.tokens()).access_token
})
afterAll(() => provider[Symbol.asyncDispose]())

interface Attachable {
  readonly Id: string
  readonly FileName: string
  readonly TempDownloadUri: string
}

const at = (path: string) => `/v3/company/${REALM}/${path}`
const get = (path: string) => provider.api(at(path), accessToken)
const fault = async (response: Response) => ({
  status: response.status,
  code: ((await response.json()) as { Fault: { Error: { code: string }[] } }).Fault.Error[0]?.code,
})

function form(
  ...files: readonly { name: string; content: string; type?: string; metadata?: string }[]
) {
  const body = new FormData()
  for (const [index, { name, content, type = 'text/csv', metadata }] of files.entries()) {
    if (metadata !== undefined) {
      const part = new Blob([metadata], { type: 'application/json' })
      body.set(`file_metadata_0${index}`, part, 'metadata.json')
    }
    body.set(`file_content_0${index}`, new Blob([content], { type }), name)
  }
  return body
}
const upload = (body: RequestInit['body'], query = '') =>
  provider.api(at(`upload${query}`), accessToken, { method: 'POST', body: body ?? null })
const uploaded = async (body: FormData, query = ''): Promise<Attachable[]> => {
  const response = await upload(body, query)
  expect(response.status).toBe(200)
  const { AttachableResponse } = (await response.json()) as {
    AttachableResponse: { Attachable: Attachable }[]
  }
  return AttachableResponse.map(({ Attachable: attachable }) => attachable)
}

describe('uploads to the accounting API', () => {
  it('the accounting API stores each uploaded file as an attachable with the members of its metadata', async () => {
    const metadata = JSON.stringify({
      Note: 'signed',
      AttachableRef: [{ EntityRef: { type: 'Invoice', value: '7' } }],
    })
    const [first, second] = await uploaded(
      form({ name: 'ü.csv', content: 'a;b', metadata }, { name: 'b.csv', content: '12345' }),
    )
    expect(first).toMatchObject({
      FileName: 'ü.csv',
      Size: 3,
      ContentType: 'text/csv',
      Note: 'signed',
    })
    expect(second).toMatchObject({ FileName: 'b.csv', Size: 5, SyncToken: '0' })
    expect(await (await get(`attachable/${first?.Id}`)).json()).toMatchObject({
      Attachable: { AttachableRef: [{ EntityRef: { type: 'Invoice', value: '7' } }] },
    })
  })

  it('the temporary address of a file allows downloads without an access token for 15 minutes', async () => {
    const [attachable] = await uploaded(form({ name: 'a.csv', content: 'a;b' }))
    const fromUpload = await fetch(attachable?.TempDownloadUri ?? '')
    expect(await fromUpload.text()).toBe('a;b')
    provider.moveTime(14 * 60_000)
    const url = await (await get(`download/${attachable?.Id}`)).text()
    provider.moveTime(2 * 60_000)
    expect(await (await fetch(url)).text()).toBe('a;b')
    expect((await fetch(attachable?.TempDownloadUri ?? '')).status).toBe(404)
    expect((await fetch(`${provider.url}/downloads/guessed`)).status).toBe(404)
  })

  it('the response to a download makes a browser save an HTML page instead of showing it', async () => {
    const name = 'a"\r\nX-Injected: 1 \u{1F600}).html'
    const [attachable] = await uploaded(
      form({
        name: 'a.html',
        content: '<script>1</script>',
        type: 'text/html',
        metadata: JSON.stringify({ FileName: name }),
      }),
    )
    expect(attachable?.FileName).toBe(name)
    const { headers } = await fetch(attachable?.TempDownloadUri ?? '')
    expect(headers.get('Content-Disposition')).toBe(
      "attachment; filename*=UTF-8''a%22%0D%0AX-Injected%3A%201%20%F0%9F%98%80%29.html",
    )
    expect(headers.get('Content-Security-Policy')).toBe('sandbox')
    expect(headers.get('X-Content-Type-Options')).toBe('nosniff')
    expect(headers.has('X-Injected')).toBe(false)
  })

  it('the accounting API returns the first response for a repeated upload, and stores the file only once', async () => {
    const body = () => form({ name: 'a.csv', content: 'a;b' })
    const [first] = await uploaded(body(), '?requestid=u1')
    expect(await uploaded(body(), '?requestid=u1')).toEqual([first])
    const query = encodeURIComponent('select count(*) from Attachable')
    expect(await (await get(`query?query=${query}`)).json()).toMatchObject({
      QueryResponse: { totalCount: 1 },
    })
    expect(await fault(await upload(body(), `?requestid=${'r'.repeat(51)}`))).toEqual({
      status: 400,
      code: '2130',
    })
  })

  it.each<[string, () => RequestInit['body']]>([
    ['no multipart body', () => '{}'],
    ['no file', () => new FormData()],
    [
      'a text instead of a file',
      () => {
        const body = new FormData()
        body.set('file_content_01', 'a;b')
        return body
      },
    ],
    ['metadata that are not JSON', () => form({ name: 'a.csv', content: 'a', metadata: '{' })],
    ['metadata that are a list', () => form({ name: 'a.csv', content: 'a', metadata: '[]' })],
    [
      '21 files',
      () =>
        form(...Array.from({ length: 21 }, (_, index) => ({ name: `${index}.csv`, content: 'a' }))),
    ],
  ])('the accounting API rejects an upload with %s, and stores nothing', async (_, body) => {
    expect(await fault(await upload(body()))).toEqual({ status: 400, code: '2010' })
    expect((await provider.counters()).realms[REALM]).toMatchObject({ entitiesCreated: 0 })
  })

  it('the accounting API gives a company no download address for the file of another company', async () => {
    const [attachable] = await uploaded(form({ name: 'a.csv', content: 'a;b' }))
    const other = (await provider.tokens('4620816365291')).access_token
    const response = await provider.api(
      `/v3/company/4620816365291/download/${attachable?.Id}`,
      other,
    )
    expect(await fault(response)).toEqual({ status: 400, code: '610' })
    expect(await fault(await get('download/999'))).toEqual({ status: 400, code: '610' })
  })
})

describe('the PDF of an invoice', () => {
  it('the accounting API returns an invoice as a PDF, and rejects the request for the PDF of an unknown invoice', async () => {
    const posted = await provider.api(at('invoice'), accessToken, {
      method: 'POST',
      body: JSON.stringify({ DocNumber: '1001', TotalAmt: 66 }),
    })
    const { Invoice } = (await posted.json()) as { Invoice: { Id: string } }
    const response = await get(`invoice/${Invoice.Id}/pdf`)
    expect(response.headers.get('Content-Type')).toBe('application/pdf')
    expect(await response.text()).toMatch(/^%PDF-1\.4\n[^]*\(Invoice 1001\) Tj[^]*%%EOF\n$/)
    expect(await fault(await get('invoice/999/pdf'))).toEqual({ status: 400, code: '610' })
  })
})
