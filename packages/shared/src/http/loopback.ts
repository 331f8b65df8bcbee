/**
 * Returns whether a host name, spelled as `URL.hostname` returns it, belongs to the loopback interface: `localhost`
 * (RFC 6761 §6.3), `[::1]` or an address of 127.0.0.0/8 (RFC 1122 §3.2.1.3). The whole address is compared, because a
 * comparison of the prefix would accept the public name `127.0.0.1.example.com`.
 */
export const isLoopback = (hostname: string): boolean =>
  hostname === 'localhost' || hostname === '[::1]' || /^127(?:\.\d{1,3}){3}$/.test(hostname)
