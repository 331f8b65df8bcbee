import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { proxy } from 'hono/proxy'
import { announce, bearers, settings } from './peer.ts'

const options = settings()
const bearerOf = bearers(options)
const app = new Hono().all('/v3/company/:realm/*', (c) => {
  const { pathname, search } = new URL(c.req.url)
  const authorization = bearerOf(pathname)
  if (authorization === undefined) return c.notFound()
  const { host: _, ...headers } = c.req.header()
  return proxy(options.upstream + pathname + search, {
    raw: c.req.raw,
    headers: { ...headers, authorization },
  })
})
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, announce)
