import { Agent, request } from 'undici'

export interface JsonClient extends AsyncDisposable {
  /**
   * Sends a POST request, reads and discards the response body, and returns the status of the response.
   *
   * @throws {Error} unless the status is 2xx
   */
  post(url: string, body: unknown, extraHeaders?: Readonly<Record<string, string>>): Promise<number>
}

/** Creates an HTTP client that keeps at most `connections` connections open. */
export function createJsonClient(
  connections: number,
  headers: Readonly<Record<string, string>> = {},
): JsonClient {
  const agent = new Agent({ connections })
  return {
    async post(url, body, extraHeaders = {}) {
      const response = await request(url, {
        method: 'POST',
        dispatcher: agent,
        headers: { ...headers, ...extraHeaders, 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
      })
      const text = await response.body.text()
      if (response.statusCode >= 300)
        throw new Error(`${url} responded with ${response.statusCode}: ${text}`)
      return response.statusCode
    },
    [Symbol.asyncDispose]: () => agent.destroy(),
  }
}
