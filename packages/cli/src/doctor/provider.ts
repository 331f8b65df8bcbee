import { z } from 'zod'
import { clockFinding, httpClock } from '@integration-host/shared/findings/clock'
import { type Finding, ok, problem, warning } from '@integration-host/shared/findings/finding'
import { reached, unreachable } from './reach.ts'

/** What a refresh and a connection need of the discovery document. */
const Discovery = z.object({
  issuer: z.string(),
  authorization_endpoint: z.url(),
  token_endpoint: z.url(),
})
const loopback = /^(127\.|localhost$|\[::1\]$)/

/** Looks whether the provider's discovery document can be had and used. */
export async function examineProvider(
  address: string,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const url = new URL(address)
  const askedAt = Date.now()
  let answer: Response
  let text: string
  try {
    answer = await fetch(url, { redirect: 'manual', signal })
    text = await answer.text()
  } catch (error) {
    return [unreachable(url.host, 'DISCOVERY_URL', error)]
  }
  const clock = httpClock(answer, askedAt, Date.now())
  return [
    reached(url.host),
    documentFinding(answer.status, text),
    ...(url.protocol === 'http:' && !loopback.test(url.hostname)
      ? [warning('transport', 'plain http', 'Use https: tokens travel unprotected.')]
      : []),
    ...(clock === null ? [] : [clockFinding(clock)]),
  ]
}

function documentFinding(status: number, text: string): Finding {
  const check = 'discovery'
  const mend = 'Is DISCOVERY_URL the address of the OpenID discovery document?'
  if (status !== 200) return problem(check, `status ${status}`, mend)
  const document = Discovery.safeParse(jsonOf(text))
  if (!document.success) {
    const lacking = document.error.issues.map(({ path }) => path.join('.')).filter(Boolean)
    return problem(
      check,
      lacking.length === 0 ? 'is not JSON' : `no usable ${lacking.join(', ')}`,
      mend,
    )
  }
  return ok(check, document.data.issuer)
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
