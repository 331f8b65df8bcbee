import { getPath } from 'hono/utils/url'

/**
 * A fixed path beside a path with a parameter, such as `/credentials/summary` beside `/credentials/:name`.
 *
 * Hono's fast router (RegExpRouter) rejects such a pair, and Hono then uses its slower router for every path of the
 * service, which costs the hand-out of access tokens 7 % of its rate. The fixed path is therefore registered with `#`
 * in place of its last slash. A request can never have such a path, because a client does not send the fragment of a
 * URL, and percent-encoding keeps `%23` apart from `#` (RFC 3986, sections 2.2 and 3.5).
 */
export const routedFixedPath = (path: string): string => path.replace(/\/(?=[^/]*$)/, '#')

/** Returns the path that clients know, for logs, metrics and documentation. */
export const publicPath = (routed: string): string => routed.replace('#', '/')

/** Returns the function with which Hono finds the path of a request, if the service has such fixed paths. */
export function pathsWith(fixedPaths: readonly string[]): (request: Request) => string {
  const routed = new Map(fixedPaths.map((path) => [path, routedFixedPath(path)]))
  return (request) => {
    const path = getPath(request)
    return routed.get(path) ?? path
  }
}
