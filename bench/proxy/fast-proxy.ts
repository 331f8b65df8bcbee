import { createServer } from 'node:http'
import fastProxy from 'fast-proxy'
import { announce, bearers, settings } from './peer.ts'

const options = settings()
const bearerOf = bearers(options)
const forward = fastProxy({ base: options.upstream, undici: { connections: 64, pipelining: 1 } })

const server = createServer((request, response) => {
  const { url = '' } = request
  const authorization = bearerOf(url)
  if (authorization === undefined) return response.writeHead(404).end()
  return forward.proxy(request, response, url, {
    rewriteRequestHeaders: (_request, headers) => ({ ...headers, authorization }),
  })
})
server.listen(0, '127.0.0.1', 4_096, () => announce(server.address()))
