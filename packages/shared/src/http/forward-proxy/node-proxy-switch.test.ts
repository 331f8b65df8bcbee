import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import { afterEach, expect, it } from 'vitest'
import { startForwardProxy } from '../../../test-support/forward-proxy.ts'

const stack = new AsyncDisposableStack()
afterEach(() => stack.disposeAsync())

const NONE = Object.fromEntries(
  ['http_proxy', 'https_proxy', 'NO_PROXY', 'no_proxy'].map((name) => [name, undefined]),
)

it('with NODE_USE_ENV_PROXY, neither fetch nor node:http uses the proxy by itself', async () => {
  const server = createServer((_, response) => response.end('direct')).listen(0, '127.0.0.1')
  stack.defer(() => void server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const proxy = stack.use(await startForwardProxy({ routes: {} }))
  const module = new URL('node-proxy-switch.ts', import.meta.url).href
  const program = `
    const { disableNodeProxy } = await import('${module}')
    disableNodeProxy()
    const { get } = await import('node:http')
    const url = 'http://127.0.0.1:${port}/'
    const { statusCode } = await new Promise((resolve) => get(url, resolve))
    process.stdout.write(statusCode + (await (await fetch(url)).text()))
    process.exit()`
  const url = `http://${proxy.address}`
  const env = { ...process.env, NODE_USE_ENV_PROXY: '1', HTTP_PROXY: url, HTTPS_PROXY: url }

  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', program],
    { env: { ...env, ...NONE } },
  )
  expect(stdout).toBe('200direct')
  expect(proxy.requests).toEqual([])
})
