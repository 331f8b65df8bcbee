import { randomBytes } from 'node:crypto'
import { connect } from 'node:net'
import { gzipSync } from 'node:zlib'
import { until } from '@integration-host/shared/test-support/eventually'
import { raw } from '@integration-host/shared/test-support/raw-http'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  CHANGE_ID,
  cloudEvent,
  legacyChange,
  legacyNotification,
  REALM,
  signatureOf,
  TOKEN,
} from '../../test-support/notifications.ts'
import { type ReceiverFixture, startReceiver } from '../../test-support/receiver-fixture.ts'

const BODY = JSON.stringify(legacyNotification())
const MIB = 1_048_576

describe('the webhook receiver: POST /webhooks/intuit', () => {
  let receiver: ReceiverFixture
  beforeEach(async () => {
    receiver = await startReceiver()
  })
  afterEach(() => receiver[Symbol.asyncDispose]())

  const deliveries = (outcome: string) => receiver.metric('webhook_deliveries_total', { outcome })

  /** Sends a request as raw bytes. `headers` are complete lines. */
  const sendRaw = (headers: readonly string[], body = '', method = 'POST') =>
    raw(
      receiver.port,
      [
        `${method} /webhooks/intuit HTTP/1.1`,
        'Host: receiver',
        'Connection: close',
        ...headers,
        '',
        body,
      ].join('\r\n'),
    )
  const signed = (body: string) => [
    `intuit-signature: ${signatureOf(Buffer.from(body, 'latin1'))}`,
    `Content-Length: ${body.length}`,
  ]

  /**
   * Sends another valid notification, and expects that no event was published except the event of this notification.
   */
  async function expectNothingPublishedButTheNext(): Promise<void> {
    const { status } = await receiver.send(legacyNotification([legacyChange({ id: 'next' })]))
    expect(status).toBe(200)
    await receiver.expectIds([CHANGE_ID.replace('129', 'next')])
  }

  describe('webhooks with a valid signature', () => {
    it.each([
      ['legacy', legacyNotification(), 'application/json'],
      ['CloudEvents', [cloudEvent()], 'application/cloudevents+json'],
      ['CloudEvents', [cloudEvent()], 'application/json; charset=utf-8'],
      ['CloudEvents', [cloudEvent()], 'text/plain'],
    ])(
      'the receiver publishes the change of a %s notification of type %3$s',
      async (_, document, type) => {
        const response = await receiver.send(document, { 'Content-Type': type })
        expect(response.status).toBe(200)
        expect(await response.json()).toEqual({ published: 1, ignored: 0 })
        await receiver.expectIds([CHANGE_ID])
        expect(receiver.events[0]).toMatchObject({
          routingKey: 'intuit.Invoice.update',
          event: { Realm: REALM, EntityId: '129', Source: 'webhook' },
        })
      },
    )

    it('the receiver publishes the valid changes of a notification, and counts and logs the invalid changes', async () => {
      const document = [
        cloudEvent({ type: 'qbo.secret-project.created.v1' }),
        cloudEvent({ intuitentityid: '2' }),
        cloudEvent({ intuitaccountid: 'not a realm' }),
      ]
      const response = await receiver.send(document)
      expect(response.status).toBe(200)
      expect(await response.json()).toEqual({ published: 1, ignored: 2 })
      await receiver.expectIds([CHANGE_ID.replace('129', '2')])
      expect(
        await receiver.metric('webhook_events_ignored_total', { reason: 'unknown_entity' }),
      ).toBe(1)
      expect(
        await receiver.metric('webhook_events_ignored_total', { reason: 'realm_unusable' }),
      ).toBe(1)
      expect(
        await receiver.metric('webhook_events_published_total', {
          format: 'cloudevents',
          entity: 'Invoice',
          operation: 'update',
        }),
      ).toBe(1)
      const logged = receiver.lines.filter((line) => line.includes('was not published'))
      expect(logged).toHaveLength(2)
      expect(logged.join('')).not.toMatch(/secretproject|not a realm/)
    })

    it('the receiver publishes a repeated notification again with the same message id', async () => {
      for (const _ of [1, 2, 3]) expect((await receiver.send(BODY)).status).toBe(200)
      await receiver.expectIds([CHANGE_ID, CHANGE_ID, CHANGE_ID])
    })

    it('the receiver accepts a notification without changes', async () => {
      expect(await (await receiver.send([])).json()).toEqual({ published: 0, ignored: 0 })
      await expectNothingPublishedButTheNext()
    })

    it('the receiver accepts a body in chunks of one byte', async () => {
      const chunks = Array.from(BODY, (byte) => `1\r\n${byte}\r\n`).join('')
      const response = await sendRaw(
        [`intuit-signature: ${signatureOf(BODY)}`, 'Transfer-Encoding: chunked'],
        `${chunks}0\r\n\r\n`,
      )
      expect(response.status).toBe(200)
      await receiver.expectIds([CHANGE_ID])
    })

    it('the receiver accepts a body that begins with a byte order mark', async () => {
      const body = Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from(BODY)])
      expect((await receiver.send(body)).status).toBe(200)
      await receiver.expectIds([CHANGE_ID])
    })

    it('the receiver accepts a body of 1 MiB', async () => {
      const body = BODY.padEnd(MIB)
      expect((await receiver.send(body)).status).toBe(200)
      await receiver.expectIds([CHANGE_ID])
    })

    it('the receiver accepts both the old and the new token during a rotation', async () => {
      await using rotating = await startReceiver({ tokens: `new-verifier-token-2, ${TOKEN}` })
      expect((await rotating.send(BODY)).status).toBe(200)
      const headers = { 'intuit-signature': signatureOf(BODY, 'new-verifier-token-2') }
      expect((await rotating.send(BODY, headers)).status).toBe(200)
    })

    it.each([
      ['hello'],
      ['{}'],
      ['null'],
      [BODY.slice(0, -1)],
      ['['.repeat(500_000)],
      ['{"specversion":'.repeat(60_000)],
      [`${'['.repeat(500_000)}${']'.repeat(500_000)}`],
    ])('the receiver responds 400 to a body that is not a notification', async (body) => {
      const response = await receiver.send(body)
      expect(response.status).toBe(400)
      expect(await response.json()).toMatchObject({ code: 'invalid_request' })
      expect(await deliveries('invalid_request')).toBe(1)
      await expectNothingPublishedButTheNext()
    })

    it('the receiver treats a notification that is a nested array as one malformed change, and ignores this change', async () => {
      const body = `${'['.repeat(1_000)}${']'.repeat(1_000)}`
      expect(await (await receiver.send(body)).json()).toEqual({ published: 0, ignored: 1 })
      await expectNothingPublishedButTheNext()
    })
  })

  describe('webhooks without a valid signature', () => {
    it.each([
      ['altered body', [`intuit-signature: ${signatureOf(BODY)}`], BODY.replace('129', '130')],
      ['signature of another token', [`intuit-signature: ${signatureOf(BODY, 'other')}`], BODY],
      ['missing signature', [], BODY],
      ['empty signature', ['intuit-signature:'], BODY],
      ['shorter signature', ['intuit-signature: AAAA'], BODY],
      ['longer signature', [`intuit-signature: ${signatureOf(BODY)}${'A'.repeat(8_000)}`], BODY],
      [
        'doubled signature',
        [`intuit-signature: ${signatureOf(BODY)}`, `intuit-signature: ${signatureOf(BODY)}`],
        BODY,
      ],
      ['truncated body', [`intuit-signature: ${signatureOf(BODY)}`], BODY.slice(0, -2)],
      ['empty body', [`intuit-signature: ${signatureOf(BODY)}`], ''],
      ['body that is no JSON', ['intuit-signature: AAAA'], '}{'],
    ])(
      'the receiver rejects a delivery with 403 before its body is parsed: %s',
      async (_, headers, body) => {
        const response = await sendRaw([...headers, `Content-Length: ${body.length}`], body)
        expect(response.status).toBe(403)
        expect(response.body).toContain('"code":"signature_invalid"')
        expect(await deliveries('signature_invalid')).toBe(1)
        await expectNothingPublishedButTheNext()
      },
    )

    it('the receiver logs a single warning for many rejected deliveries, and the warning contains no signature or token', async () => {
      const forged = randomBytes(32).toString('base64')
      for (let round = 0; round < 5; round += 1)
        expect((await receiver.send(BODY, { 'intuit-signature': forged })).status).toBe(403)
      const log = receiver.lines.join('')
      expect(log.split('matches no verifier token')).toHaveLength(2)
      for (const secret of [forged, TOKEN, signatureOf(BODY)]) expect(log).not.toContain(secret)
    })
  })

  describe('requests that are not valid webhooks', () => {
    it('the receiver responds 415 to a compressed body, although the signature is valid', async () => {
      const response = await receiver.send(gzipSync(BODY), { 'Content-Encoding': 'gzip' })
      expect(response.status).toBe(415)
      expect(await deliveries('unsupported_media_type')).toBe(1)
      await expectNothingPublishedButTheNext()
    })

    it('the receiver responds 413 to a body of 1 MiB and one byte, without reading the body', async () => {
      const response = await sendRaw([`Content-Length: ${MIB + 1}`])
      expect(response.status).toBe(413)
      expect(await deliveries('payload_too_large')).toBe(1)
      await expectNothingPublishedButTheNext()
    })

    it('the receiver rejects a chunked body of 1 MiB and one byte with 413, although its signature is valid', async () => {
      const body = BODY.padEnd(MIB + 1)
      const response = await sendRaw(
        [`intuit-signature: ${signatureOf(body)}`, 'Transfer-Encoding: chunked'],
        `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
      )
      expect(response.status).toBe(413)
      await expectNothingPublishedButTheNext()
    })

    it('the receiver publishes nothing if the client closes the connection before the end of the body', async () => {
      const socket = connect(receiver.port, '127.0.0.1')
      const head = [`intuit-signature: ${signatureOf(BODY)}`, `Content-Length: ${BODY.length + 1}`]
      socket.write(['POST /webhooks/intuit HTTP/1.1', 'Host: r', ...head, '', BODY].join('\r\n'))
      await until(async () => (await receiver.metric('webhook_body_bytes')) === BODY.length)
      socket.destroy()
      await until(async () => (await deliveries('body_incomplete')) === 1)
      expect(await deliveries('invalid_request')).toBe(0)
      expect(await receiver.metric('webhook_body_bytes')).toBe(0)
      await expectNothingPublishedButTheNext()
    })

    it('the receiver responds 408 if the body does not arrive before the deadline', async () => {
      await using impatient = await startReceiver({ deadlineMs: 50 })
      const response = await raw(
        impatient.port,
        `POST /webhooks/intuit HTTP/1.1\r\nHost: r\r\nContent-Length: 9\r\n\r\n{`,
      )
      expect(response.status).toBe(408)
      expect(response.head).toMatch(/connection: close/i)
      expect(
        await impatient.metric('webhook_deliveries_total', { outcome: 'request_timeout' }),
      ).toBe(1)
      expect(await impatient.metric('webhook_body_bytes')).toBe(0)
    })

    it.each(['GET', 'HEAD', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])(
      'the receiver rejects the method %s with 405',
      async (method) => {
        const response = await sendRaw(['Content-Length: 0'], '', method)
        expect(response.status).toBe(405)
        expect(response.head).toMatch(/^allow: POST$/im)
        await expectNothingPublishedButTheNext()
      },
    )

    it('the receiver rejects headers of more than 16 KiB with 431', async () => {
      const response = await sendRaw([...signed(BODY), `X-Filler: ${'x'.repeat(17_000)}`], BODY)
      expect(response.status).toBe(431)
      await expectNothingPublishedButTheNext()
    })

    it.each([
      [
        'both Content-Length and Transfer-Encoding',
        ['Content-Length: 3', 'Transfer-Encoding: chunked'],
      ],
      ['two different values of Content-Length', ['Content-Length: 3', 'Content-Length: 4']],
      ['a Content-Length that is no number', ['Content-Length: 1e3']],
      ['an unknown transfer coding', ['Transfer-Encoding: gzip, chunked']],
    ])('the receiver rejects a request with %s', async (_, headers) => {
      const response = await sendRaw([`intuit-signature: ${signatureOf(BODY)}`, ...headers], BODY)
      expect(response.status).toBeGreaterThanOrEqual(400)
      expect(response.status).toBeLessThan(500)
      await expectNothingPublishedButTheNext()
    })

    it('the receiver responds 404 to an unknown path', async () => {
      const { status } = await fetch(`${receiver.url}/webhooks/other`, {
        method: 'POST',
        body: BODY,
      })
      expect(status).toBe(404)
      await expectNothingPublishedButTheNext()
    })
  })
})
