import { type Context, Hono } from 'hono'
import { IntegrationError } from '@integration-host/shared/errors'
import { problems } from '@integration-host/shared/http/service-app'
import { describeRoute } from 'hono-openapi'
import type { ApiErrorCode } from '../accounting/api-errors.ts'
import { invoicePdf } from '../accounting/pdf.ts'
import { metadataOf, uploadParts } from '../accounting/upload-parts.ts'
import type { Body } from '../accounting/posted-entities.ts'
import type { Provider } from '../provider.ts'
import { responsesUnderFaults } from './under-faults.ts'

interface AccountingRequests {
  /** Returns the response for a request that the accounting API rejects. */
  readonly rejected: (c: Context, code: ApiErrorCode, detail?: string) => Response
  /** Returns the `requestid` of the request; `null` if it has none. */
  readonly requestIdOf: (c: Context) => string | null
}

const COMPANY = '/v3/company/:realm'
const MAX_FILES = 20
const MAX_REQUEST_ID = 50
const MEDIA_TYPE = /^[a-z0-9][\w.+-]{0,60}\/[a-z0-9][\w.+-]{0,60}$/i
const ANY_TYPE = 'application/octet-stream'

/**
 * The routes of the accounting API for files: uploads, temporary download addresses, and the PDF of an invoice. Intuit
 * documents the accepted types of files, but not the error for other types. This sandbox therefore accepts all types.
 */
export function attachmentRoutes(
  provider: Provider,
  { rejected, requestIdOf }: AccountingRequests,
) {
  const { posted, attachments } = provider
  const temporaryUrl = (realm: string, id: string): string | null => {
    const key = attachments.temporaryKey(realm, id)
    return key === null ? null : `${provider.addresses().base}${DOWNLOADS}/${key}`
  }

  function stored(realm: string, { metadata, name, type, bytes }: Upload, now: Date): Body {
    const FileName = typeof metadata['FileName'] === 'string' ? metadata['FileName'] : name
    const ContentType = MEDIA_TYPE.test(type) ? type : ANY_TYPE
    const { Id: _, ...given } = metadata
    const outcome = posted.post(
      { realm, entity: 'Attachable', requestId: null, operation: null },
      { ...given, FileName, ContentType, Size: bytes.length },
      now,
    )
    // This creation cannot be rejected. An entity is rejected only for a duplicate name or an invalid requestid, but an
    // attachable needs no unique name and is created without a requestid.
    if (outcome.kind === 'rejected') throw new Error(`an attachable was rejected: ${outcome.error}`)
    const attachable = outcome.document['Attachable'] as Body & { readonly Id: string }
    attachments.put(realm, attachable.Id, { name: FileName, contentType: ContentType, bytes })
    provider.onWritten(realm, 'created')
    return { Attachable: { ...attachable, TempDownloadUri: temporaryUrl(realm, attachable.Id) } }
  }

  return new Hono()
    .post(
      `${COMPANY}/upload`,
      operation(
        'upload',
        'Upload files: multipart parts file_content_N and file_metadata_N (JSON or XML)',
      ),
      async (c) => {
        const { realm } = c.req.param()
        const requestId = requestIdOf(c)
        if (requestId !== null && requestId.length > MAX_REQUEST_ID) return rejected(c, '2130')
        const uploads = await uploadsOf(c)
        if (uploads === null)
          return rejected(
            c,
            '2010',
            `The body must be multipart/form-data with 1 to ${MAX_FILES} parts file_content_N, and JSON objects (or XML) in file_metadata_N.`,
          )
        // The earlier response is looked up only after the body was read. If two equal uploads arrive at the same time,
        // the second upload then finds the response to the first.
        const known = requestId === null ? null : attachments.response(realm, requestId)
        if (known !== null) {
          provider.onWritten(realm, 'played-back')
          return c.json(known)
        }
        const now = new Date(provider.now())
        const results = uploads.map((upload) => stored(realm, upload, now))
        const document = { AttachableResponse: results, time: now.toISOString() }
        if (requestId !== null) attachments.setResponse(realm, requestId, document)
        return c.json(document)
      },
    )
    .get(
      `${COMPANY}/download/:id`,
      operation('download', 'An address of the file that is valid for 15 minutes'),
      (c) => {
        const { realm, id } = c.req.param()
        const isKnown = posted.find(realm, 'Attachable', id) !== null
        const url = isKnown ? temporaryUrl(realm, id) : null
        return url === null ? rejected(c, '610') : c.text(url)
      },
    )
    .get(`${COMPANY}/invoice/:id/pdf`, operation('getInvoicePdf', 'An invoice as PDF'), (c) => {
      const { realm, id } = c.req.param()
      const invoice = posted.find(realm, 'Invoice', id)
      if (invoice === null) return rejected(c, '610')
      return c.body(invoicePdf(invoice), 200, { 'Content-Type': 'application/pdf' })
    })
}

/** The route of the temporary download addresses. As with Intuit, the key in the address is the only authorization. */
export function downloadRoutes({ attachments }: Provider) {
  return new Hono().get(
    `${DOWNLOADS}/:key`,
    describeRoute({
      operationId: 'downloadFile',
      tags: ['accounting'],
      summary: 'The content of an uploaded file',
      responses: {
        200: { description: 'the file', content: { '*/*': {} } },
        ...problems('not_found'),
      },
    }),
    (c) => {
      const file = attachments.file(c.req.param('key'))
      if (file === null)
        throw new IntegrationError('not_found', 'this address of a file is unknown or has expired')
      return c.body(file.bytes, 200, {
        'Content-Type': file.contentType,
        // These headers prevent a browser from running an uploaded page in the origin of the sandbox.
        'Content-Disposition': `attachment; filename*=UTF-8''${encoded(file.name)}`,
        'Content-Security-Policy': 'sandbox',
      })
    },
  )
}

const DOWNLOADS = '/downloads'

/** Encodes a file name for `filename*` (RFC 8187 §3.2). Unpaired surrogates are replaced. */
const encoded = (name: string): string =>
  encodeURIComponent(name.toWellFormed()).replaceAll(
    /['()*!]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )

interface Upload {
  readonly metadata: Body
  readonly name: string
  readonly type: string
  readonly bytes: Uint8Array<ArrayBuffer>
}

/** Returns the files of a multipart body with their metadata; `null` if the body is not an upload. */
async function uploadsOf(c: Context): Promise<readonly Upload[] | null> {
  const body = Buffer.from(await c.req.raw.arrayBuffer())
  const parts = uploadParts(c.req.header('Content-Type') ?? '', body)
  const files = parts?.filter(({ name }) => CONTENT.test(name)) ?? []
  if (files.length === 0 || files.length > MAX_FILES) return null
  const uploads: Upload[] = []
  for (const { name, fileName, type, bytes } of files) {
    const described = parts?.find((part) => part.name === name.replace('content', 'metadata'))
    const metadata = described === undefined ? {} : metadataOf(described.bytes.toString('utf8'))
    if (metadata === null) return null
    uploads.push({ metadata, name: fileName ?? name, type, bytes: new Uint8Array(bytes) })
  }
  return uploads
}

const CONTENT = /^file_content_\w{1,10}$/

const operation = (operationId: string, summary: string) =>
  describeRoute({
    operationId,
    tags: ['accounting'],
    summary,
    responses: responsesUnderFaults({ 200: summary, 400: 'ValidationFault' }),
  })
