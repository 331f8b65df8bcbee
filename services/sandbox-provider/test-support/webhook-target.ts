/** A receiver for the sandbox's webhooks. It verifies signatures without the code of the sandbox. */
import { createHmac } from 'node:crypto'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import { listenLocal } from '@integration-host/shared/test-support/listen-local'

export const VERIFIER_TOKEN = 'verifier-token-of-the-sandbox-tests'

export interface ReceivedDelivery {
  readonly isSigned: boolean
  readonly headers: IncomingHttpHeaders
  readonly document: unknown
  /** The changes as `<realm>/<entity>/<id>/<operation>`, in the spelling of the notification format. */
  readonly changes: readonly string[]
}

export interface WebhookTarget extends AsyncDisposable {
  readonly url: string
  readonly deliveries: readonly ReceivedDelivery[]
  /**
   * Sets the status of all further responses; with `none`, no response is sent. Webhooks with a wrong signature get
   * 403.
   */
  respond(status: number | 'none'): void
}

interface CloudEvent {
  readonly type: string
  readonly intuitentityid: string
  readonly intuitaccountid: string
}
interface Legacy {
  readonly eventNotifications: readonly {
    readonly realmId: string
    readonly dataChangeEvent: {
      readonly entities: readonly { name: string; id: string; operation: string }[]
    }
  }[]
}

function changesOf(document: readonly CloudEvent[] | Legacy): string[] {
  if ('eventNotifications' in document)
    return document.eventNotifications.flatMap(({ realmId, dataChangeEvent }) =>
      dataChangeEvent.entities.map(({ name, id, operation }) =>
        [realmId, name, id, operation].join('/'),
      ),
    )
  return document.map(({ type, intuitaccountid, intuitentityid }) => {
    const [, entity, operation] = type.split('.')
    return [intuitaccountid, entity, intuitentityid, operation].join('/')
  })
}

export async function startWebhookTarget(): Promise<WebhookTarget> {
  const deliveries: ReceivedDelivery[] = []
  let status: number | 'none' = 200
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('error', () => {})
    request.on('end', () => {
      const body = Buffer.concat(chunks)
      const signature = createHmac('sha256', VERIFIER_TOKEN).update(body).digest('base64')
      const isSigned = request.headers['intuit-signature'] === signature
      const document = JSON.parse(body.toString()) as readonly CloudEvent[] | Legacy
      deliveries.push({
        isSigned,
        headers: request.headers,
        document,
        changes: changesOf(document),
      })
      if (status === 'none') return
      response.writeHead(isSigned ? status : 403).end()
    })
  })
  const local = await listenLocal(server)
  return {
    ...local,
    url: `${local.url}/webhooks/intuit`,
    deliveries,
    respond: (given) => void (status = given),
  }
}
