import { Agent, createServer } from 'node:http'
import { createProxyServer } from 'http-proxy-3'
import { announce, bearers, settings } from './peer.ts'

const options = settings()
const bearerOf = bearers(options)
const agent = new Agent({ keepAlive: true, maxSockets: 64 })
const proxy = createProxyServer({ target: options.upstream, agent })

const server = createServer((request, response) => {
  const authorization = bearerOf(request.url ?? '')
  if (authorization === undefined) return response.writeHead(404).end()
  request.headers.authorization = authorization
  return proxy.web(request, response)
})
server.listen(0, '127.0.0.1', 4_096, () => announce(server.address()))
