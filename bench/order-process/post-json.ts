import { Agent, request } from 'undici'

export interface JsonClient extends AsyncDisposable {
  /** @throws {Error} unless the answer is a 2xx; what it holds is read and left. */
  post(url: string, body: unknown): Promise<void>
}

/** Over kept connections, at most so many. */
export function createJsonClient(
  connections: number,
  headers: Readonly<Record<string, string>> = {},
): JsonClient {
  const agent = new Agent({ connections })
  return {
    async post(url, body) {
      const answer = await request(url, {
        method: 'POST',
        dispatcher: agent,
        headers: { ...headers, 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
      })
      const text = await answer.body.text()
      if (answer.statusCode >= 300) throw new Error(`${url} answered ${answer.statusCode}: ${text}`)
    },
    [Symbol.asyncDispose]: () => agent.destroy(),
  }
}
