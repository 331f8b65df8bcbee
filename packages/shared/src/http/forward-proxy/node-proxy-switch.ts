/**
 * Makes Node's own support of forward proxies (NODE_USE_ENV_PROXY, `--use-env-proxy`) ineffective in this OS process.
 * It would send requests among the services, with their keys, through the proxy. Requests to other parties use the
 * proxy without it.
 */
export function disableNodeProxy(): void {
  // An import of node:http would also load Node's WebSocket, which takes memory.
  const { globalAgent, setGlobalProxyFromEnv } = process.getBuiltinModule('node:http')
  // Node's documentation names the options of an agent, its types do not.
  const { options } = globalAgent as unknown as {
    readonly options: { readonly proxyEnv?: unknown }
  }
  if (options.proxyEnv === undefined) return
  // Node has no function that switches its support off. With these values it exempts every host. The address is never
  // used.
  const unused = 'http://127.0.0.1:9'
  setGlobalProxyFromEnv({ http_proxy: unused, https_proxy: unused, no_proxy: '*' })
}
