/**
 * Sends the requests of a browser in an authorization. Redirects are not followed, so that tests can check each of
 * them.
 */

/** The parts of the response of `/authorize` that a browser needs for the callback. */
export interface StartedInBrowser {
  readonly answer: Response
  /** The provider's page on which the company's owner consents. */
  readonly consent: URL
  readonly setCookie: string
  /** The cookie as the value of a `Cookie` header. */
  readonly cookie: string
  readonly state: string
}

export async function startInBrowser(
  serviceUrl: string,
  query = '',
  cookie?: string,
): Promise<StartedInBrowser> {
  const answer = await fetch(`${serviceUrl}/authorize${query}`, {
    redirect: 'manual',
    headers: cookie === undefined ? {} : { Cookie: cookie },
  })
  const consent = new URL(answer.headers.get('Location') ?? 'http://none')
  const setCookie = answer.headers.getSetCookie()[0] ?? ''
  return {
    answer,
    consent,
    setCookie,
    cookie: setCookie.split(';')[0] ?? '',
    state: consent.searchParams.get('state') ?? '',
  }
}

/** Follows the provider's redirect, as a browser would, and sends the callback. */
export const callBack = (
  serviceUrl: string,
  query: Readonly<Record<string, string>> | string,
  cookie = '',
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> =>
  fetch(
    `${serviceUrl}/callback?${typeof query === 'string' ? query : new URLSearchParams(query).toString()}`,
    { redirect: 'manual', headers: { ...(cookie !== '' && { Cookie: cookie }), ...headers } },
  )
