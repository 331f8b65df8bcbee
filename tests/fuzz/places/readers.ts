/**
 * A program with the readers of endless responses, which the client, the console and the CLI use: it reads the body of
 * each request as if it were such a response.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { readEvents, readLines } from '@integration-host/shared/http/response-body'
import { parseJson } from '@integration-host/shared/json'

const MAX_LINE_CHARACTERS = 16 * 1_048_576

const server = createServer((request, response) => {
  const body = Readable.toWeb(request) as ReadableStream<Uint8Array<ArrayBuffer>>
  read(request.url === '/lines', body)
    .catch(() => {}) // a reader rejects what is too long
    .finally(() => response.end())
})
server.listen(0, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  console.log(JSON.stringify({ url, msg: 'service is listening' }))
})

async function read(isOfLines: boolean, body: ReadableStream<Uint8Array<ArrayBuffer>>) {
  if (isOfLines)
    for await (const lines of readLines({ body }, MAX_LINE_CHARACTERS)) lines.map(parseOf)
  else for await (const event of readEvents({ body })) parseOf(event?.data ?? '')
}

const parseOf = (text: string): unknown => parseJson(text)
