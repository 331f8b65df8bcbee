import httpProxy from '@fastify/http-proxy'
import fastify from 'fastify'
import { announce, bearers, settings } from './peer.ts'

const options = settings()
const bearerOf = bearers(options)
const app = fastify()
await app.register(httpProxy, {
  upstream: options.upstream,
  prefix: '/v3/company',
  rewritePrefix: '/v3/company',
  undici: { connections: 64, pipelining: 1 },
  replyOptions: {
    rewriteRequestHeaders: (request, headers) => ({
      ...headers,
      authorization: bearerOf(request.url),
    }),
  },
})
await app.listen({ port: 0, host: '127.0.0.1', backlog: 4_096 })
announce(app.server.address())
