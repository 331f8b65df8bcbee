/** Sends HTTP requests byte by byte as given, so that tests can send requests that no HTTP client would send. */
import { connect } from 'node:net'

const CLOSE_DEADLINE_MS = 15_000

export interface ExchangeOptions {
  /** How long the server may send nothing before this side ends the connection. Default: 40 ms. */
  readonly quietMs?: number
  /**
   * Sends a request to the server on another connection and waits for its response. If this function is given, it
   * replaces `quietMs`: this side ends the connection when the server has sent nothing during two calls of the
   * function. A server under load may send nothing for longer than any fixed time.
   */
  readonly roundTrip?: () => Promise<unknown>
  /**
   * Whether the last response may be incomplete. An incomplete response is shorter than its length or lacks its
   * last chunk, so any client notices it.
   */
  readonly mayBeCut?: boolean
}

export interface RawResponse {
  readonly status: number
  readonly body: string
}

/**
 * Sends bytes on a new connection, and ends the connection as soon as the responses are complete or the server sends
 * nothing more. Resolves with the responses when the server has closed the connection.
 *
 * @throws {Error} if the server does not close the connection, or sends anything but complete responses
 */
export async function exchange(
  port: number,
  input: Buffer,
  { quietMs = 40, roundTrip, mayBeCut = false }: ExchangeOptions = {},
): Promise<readonly RawResponse[]> {
  const { promise, resolve, reject } = Promise.withResolvers<readonly RawResponse[]>()
  let received = ''
  const socket = connect(port, '127.0.0.1')
  const mayLackBody = input.includes('HEAD')
  let quiet: NodeJS.Timeout | undefined
  const startQuiet = (): void => {
    clearTimeout(quiet)
    if (roundTrip === undefined) quiet = setTimeout(() => socket.end(), quietMs)
  }
  async function endWhenQuiet(visit: () => Promise<unknown>): Promise<void> {
    for (let before = -1; before !== received.length && !socket.closed;) {
      before = received.length
      await visit()
      await visit()
    }
    socket.end()
  }
  const deadline = setTimeout(() => {
    reject(
      new Error(`the server did not close the connection within ${CLOSE_DEADLINE_MS / 1_000} s`),
    )
    socket.destroy()
  }, CLOSE_DEADLINE_MS)
  socket.on('data', (data) => {
    received += data.toString('latin1')
    startQuiet()
  })
  // A server may reset a connection if it has not read all bytes, so a reset is not an error here.
  socket.on('error', () => {})
  socket.on('close', () => {
    clearTimeout(quiet)
    clearTimeout(deadline)
    try {
      resolve(responsesIn(received, { mayLackBody, mayBeCut }))
    } catch (error) {
      reject(error)
    }
  })
  startQuiet()
  socket.write(input, () => {
    if (roundTrip !== undefined) endWhenQuiet(roundTrip).catch(reject)
  })
  return promise
}

/**
 * Parses consecutive responses strictly.
 *
 * @throws {Error} if the text contains anything but complete responses
 */
function responsesIn(
  text: string,
  { mayLackBody, mayBeCut }: { readonly mayLackBody: boolean; readonly mayBeCut: boolean },
): readonly RawResponse[] {
  const responses: RawResponse[] = []
  let rest = text
  while (rest !== '') {
    const headEnd = rest.indexOf('\r\n\r\n')
    const head = rest.slice(0, headEnd)
    const status = /^HTTP\/1\.1 (\d{3})(?: [\t -~\x80-\xff]*)?(?=\r\n|$)/.exec(head)?.[1]
    if (headEnd === -1 && mayBeCut && rest.startsWith('HTTP/1.1 ')) return responses
    if (headEnd === -1 || status === undefined)
      throw new Error(`not a response: ${JSON.stringify(rest.slice(0, 400))}`)
    for (const line of head.split('\r\n').slice(1))
      if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*$/.test(line))
        throw new Error(`not a header: ${JSON.stringify(line)}`)
    rest = rest.slice(headEnd + 4)
    const length = /^content-length: *(\d+) *$/im.exec(head)?.[1]
    let body = ''
    if (/^transfer-encoding: *chunked *$/im.test(head)) {
      if (!mayLackBody || rest !== '') [body, rest] = chunksIn(rest, mayBeCut)
    } else if (length !== undefined && Number(status) >= 200 && status !== '304') {
      body = rest.slice(0, Number(length))
      const isWhole = body.length === Number(length)
      if (isWhole) rest = rest.slice(Number(length))
      else if (mayBeCut) rest = ''
      else if (!mayLackBody || (rest !== '' && !rest.startsWith('HTTP/1.1 ')))
        throw new Error('the body of a response is not complete')
    } else if (Number(status) >= 200 && status !== '204' && status !== '304') {
      // A response without a length ends when the connection ends.
      ;[body, rest] = [rest, '']
    }
    responses.push({ status: Number(status), body })
  }
  return responses
}

function chunksIn(text: string, mayBeCut: boolean): readonly [body: string, rest: string] {
  let body = ''
  let rest = text
  for (;;) {
    if (rest === '' && mayBeCut) return [body, '']
    const size = /^([0-9a-f]{1,8})\r\n/i.exec(rest)
    if (size === null) throw new Error(`not a chunk: ${JSON.stringify(rest.slice(0, 100))}`)
    const length = Number.parseInt(size[1] ?? '', 16)
    const from = size[0].length
    if (length === 0) {
      const end = rest.indexOf('\r\n\r\n', from - 2)
      if (end === -1) throw new Error('the last chunk is not complete')
      return [body, rest.slice(end + 4)]
    }
    body += rest.slice(from, from + length)
    if (rest.slice(from + length, from + length + 2) !== '\r\n')
      throw new Error('a chunk is not complete')
    rest = rest.slice(from + length + 2)
  }
}
