import { getPath } from 'hono/utils/url'

/**
 * Supports a fixed path beside a path with a parameter, such as `/credentials/summary` beside `/credentials/:name`.
 *
 * Hono's fast router (RegExpRouter) rejects such a pair. With Hono's slower router, which would then serve every path
 * of the service, the rate of token issuance is 7 % lower. The fixed path is therefore registered with `#` in place of
 * its last slash. No request can have a path with `#`: a client does not send the fragment of a URL, and `%23` is not
 * decoded to `#` (RFC 3986, sections 2.2 and 3.5).
 */
export const routedFixedPath = (path: string): string => path.replace(/\/(?=[^/]*$)/, '#')

/** Returns the path that clients know, for logs, metrics and documentation. */
export const publicPath = (routed: string): string => routed.replace('#', '/')

/**
 * Returns the function with which Hono reads the path of a request. The function maps each of `fixedPaths` to the path
 * under which its route is registered.
 */
export function pathsWith(fixedPaths: readonly string[]): (request: Request) => string {
  const routed = new Map(fixedPaths.map((path) => [path, routedFixedPath(path)]))
  return (request) => {
    const path = getPath(request)
    return routed.get(path) ?? path
  }
}
