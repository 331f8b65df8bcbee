import { beforeEach, describe, expect, it } from 'vitest'
import { REALM, useProvider } from '../../test-support/provider-fixture.ts'

const provider = useProvider()
let accessToken: string
beforeEach(async () => {
  accessToken = (await provider.tokens()).access_token
})

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
    ['metadata in unknown XML', () => form({ name: 'a.csv', content: 'a', metadata: '<html/>' })],
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

  /** The body that python-quickbooks 0.9 sends (`client.py`, `make_request`), byte by byte. */
  const python = (metadata: string, content: string) =>
    `\n--${BOUNDARY}\nContent-Disposition: form-data; name="file_metadata_01"\nContent-Type: application/json\n\n${metadata}\n\n` +
    `--${BOUNDARY}\nContent-Disposition: form-data; name="file_content_01"\nContent-Type: text/csv\nContent-Transfer-Encoding: base64\n\n${content}\n\n` +
    `--${BOUNDARY}--\n`
  const BOUNDARY = '-------------PythonMultipartPost'
  const raw = (body: string, type = `multipart/form-data; boundary=${BOUNDARY}`) =>
    provider.api(at('upload'), accessToken, {
      method: 'POST',
      headers: { 'Content-Type': type, Accept: 'application/json' },
      body,
    })
  const metadata = '{"ContentType": "text/csv", "FileName": "a.csv", "Note": "signed"}'
  const xml =
    '<?xml version="1.0"?><ns0:Attachable xmlns:ns0="http://schema.intuit.com/finance/v3"><ns0:FileName>a.csv</ns0:FileName><ns0:Note>signed</ns0:Note><ns0:AttachableRef><ns0:EntityRef type="Invoice">7</ns0:EntityRef></ns0:AttachableRef></ns0:Attachable>'
  const base64 = Buffer.from('a;b\n--x\n').toString('base64')
  it.each<[string, string]>([
    ['of python-quickbooks', python(metadata, base64)],
    ['with CRLF', python(metadata, base64).replaceAll('\n', '\r\n')],
    ['without a leading line', python(metadata, base64).slice(1)],
    ['with XML metadata', python(xml, base64)],
    [
      'with a filename',
      python(metadata, base64).replace('content_01"', 'content_01"; filename="b"'),
    ],
    [
      'without base64',
      python(metadata, 'a;b\n--x').replace('Content-Transfer-Encoding: base64\n', ''),
    ],
  ])('the accounting API stores an upload %s as Intuit does', async (_, body) => {
    const response = await raw(body)
    expect(response.status).toBe(200)
    const { AttachableResponse } = (await response.json()) as {
      AttachableResponse: { Attachable: Attachable }[]
    }
    const attachable = AttachableResponse[0]?.Attachable
    expect(attachable).toMatchObject({ FileName: 'a.csv', ContentType: 'text/csv', Note: 'signed' })
    expect(await (await fetch(attachable?.TempDownloadUri ?? '')).text()).toBe('a;b\n--x\n')
  })

  it.each([
    ['is truncated', python(metadata, base64).slice(0, -20), undefined],
    ['has no boundary', python(metadata, base64), 'multipart/form-data'],
    [
      'has no blank line in a part',
      python(metadata, base64).replace('json\n\n', 'json\n'),
      undefined,
    ],
  ])('the accounting API rejects an upload that %s', async (_, body, type) => {
    expect(await fault(await raw(body, type))).toEqual({ status: 400, code: '2010' })
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
