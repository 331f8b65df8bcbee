import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { ConfigError, parseConfig } from '../../process/config.ts'
import { chooseProxy, forwardProxySettings } from './forward-proxy.ts'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import { startForwardProxy } from '../../../test-support/forward-proxy.ts'

const read = (env: Readonly<Record<string, string>>) =>
  parseConfig(z.object(forwardProxySettings()), env)
const proxyOf = (url: string, env: Readonly<Record<string, string>>, own: string[] = []) =>
  chooseProxy(read(env), own)(new URL(url))?.address ?? null

const BOTH = { HTTPS_PROXY: 'http://secure.example:3128', HTTP_PROXY: 'http://plain.example:8080' }

describe('the choice of the forward proxy', () => {
  it('uses HTTPS_PROXY for https and HTTP_PROXY for http', () => {
    expect(proxyOf('https://api.example/', BOTH)).toBe('secure.example:3128')
    expect(proxyOf('http://api.example/', BOTH)).toBe('plain.example:8080')
    expect(proxyOf('http://api.example/', { HTTPS_PROXY: BOTH.HTTPS_PROXY })).toBeNull()
  })

  it('prefers the names in lower case, unless they are empty', () => {
    const both = { ...BOTH, https_proxy: 'http://other.example:1', no_proxy: 'a.example' }
    expect(proxyOf('https://b.example/', both)).toBe('other.example:1')
    expect(proxyOf('https://a.example/', both)).toBeNull()
    expect(proxyOf('https://b.example/', { ...BOTH, https_proxy: '' })).toBe('secure.example:3128')
  })

  it.each([
    'http://localhost:7217/',
    'https://localhost/',
    'http://127.0.0.1:7217/',
    'http://127.1.2.3/',
    'http://[::1]/',
    'http://token-service:7217/health/ready',
  ])('is never used for %s, which is loopback or a service of the installation', (url) => {
    expect(proxyOf(url, BOTH, ['http://token-service:7217'])).toBeNull()
  })

  it.each([
    ['*', 'https://api.example/'],
    ['api.example', 'https://api.example/'],
    ['other.example, API.example', 'https://api.example/'],
    ['.example', 'https://a.b.example/'],
    ['.api.example', 'https://api.example/'],
    ['*.example', 'https://api.example/'],
    ['10.0.0.7', 'http://10.0.0.7/'],
    ['10.0.0.1-10.0.0.9', 'http://10.0.0.7/'],
    ['api.example:443', 'https://api.example/'],
    ['api.example:8443', 'https://api.example:8443/'],
    ['.example:443', 'https://api.example/'],
    ['2001:db8::7', 'http://[2001:db8::7]/'],
    ['[2001:db8::7]:80', 'http://[2001:db8::7]/'],
  ])('NO_PROXY=%s exempts %s', (NO_PROXY, url) => {
    expect(proxyOf(url, { ...BOTH, NO_PROXY })).toBeNull()
  })

  it.each([
    ['', 'https://api.example/'],
    ['example', 'https://api.example/'],
    ['.api.example', 'https://theapi.example/'],
    ['*.api.example', 'https://api.example/'],
    ['api.example:8443', 'https://api.example/'],
    ['10.0.0.1-10.0.0.9', 'http://10.0.0.10/'],
    ['10.0.0.9-10.0.0.1', 'http://10.0.0.7/'],
    ['api.example.', 'https://api.example/'],
  ])('NO_PROXY=%j does not exempt %s', (NO_PROXY, url) => {
    expect(proxyOf(url, { ...BOTH, NO_PROXY })).not.toBeNull()
  })

  it('sends the credentials of the URL, decoded', () => {
    const { HTTPS_PROXY } = read({ HTTPS_PROXY: 'http://me%40work:p%3Aw@proxy.example:3128' })
    expect(HTTPS_PROXY?.authorization?.reveal()).toBe(`Basic ${btoa('me@work:p:w')}`)
    expect(JSON.stringify(HTTPS_PROXY)).not.toContain(btoa('me@work:p:w'))
  })

  it.each([
    'proxy.example:3128',
    'socks5://u:hidden@proxy.example:1080',
    'http://u:hidden@proxy.example/path',
    'http://u:hid%zzden@proxy.example',
  ])('an address that is not usable is rejected without showing it: %s', (HTTPS_PROXY) => {
    let message = ''
    try {
      read({ HTTPS_PROXY })
    } catch (error) {
      message = error instanceof ConfigError ? error.message : ''
    }
    expect(message).toContain('HTTPS_PROXY: must be a URL like http://')
    expect(message).not.toMatch(/hid/)
  })
})

const NONE = Object.fromEntries(
  ['http_proxy', 'https_proxy', 'NO_PROXY', 'no_proxy'].map((name) => [name, undefined]),
)

it('with NODE_USE_ENV_PROXY, neither fetch nor node:http uses the proxy by itself', async () => {
  await using stack = new AsyncDisposableStack()
  const server = createServer((_, response) => response.end('direct')).listen(0, '127.0.0.1')
  stack.defer(() => void server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const proxy = stack.use(await startForwardProxy({ routes: {} }))
  const module = new URL('forward-proxy.ts', import.meta.url).href
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
