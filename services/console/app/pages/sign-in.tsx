import { useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useEffect } from 'react'
import type { SessionView, SignInOptions } from '../../src/contracts/session.ts'
import { call } from '../api.ts'
import { Outside } from '../parts/elements.tsx'
import { goTo } from '../router.ts'
import { COMMAND_LINE } from '../shell-text.ts'
import { useRead } from '../reads.ts'

/** The path of one-time links, whose secret is in the fragment. At other addresses, the fragment names a part of a page. */
const LINK_PATH = '/sign-in'

/**
 * Signs a person in. After the sign-in, the person sees the page that the browser's address names. If this is the
 * sign-in page itself, the page Now is opened. If the sign-in fails, the sign-in page is rendered again and shows the
 * failure.
 */
function useSignIn() {
  const queries = useQueryClient()
  return useMutation({
    mutationFn: (body: unknown) => call<SessionView>('POST', '/session', body),
    onSuccess(session) {
      // The pages may have data that another person has read before in this tab.
      queries.removeQueries({
        predicate: ({ queryKey: [name] }) => name !== 'session' && name !== 'sign-in',
      })
      queries.setQueryData(['session'], session)
      if (location.pathname === LINK_PATH) goTo('/', document.activeElement !== document.body)
    },
  })
}

export function SignInPage({ session }: { readonly session: SessionView | null }) {
  const { mutate: signIn, isPending: isBusy, error: failure } = useSignIn()
  const options = useRead<SignInOptions>(['sign-in'], '/sign-in')

  useEffect(() => {
    document.title = 'Sign in · Console'
    const followLink = (): void => {
      const secret = location.pathname === LINK_PATH ? location.hash.slice(1) : ''
      if (secret !== '') {
        // The secret is removed from the address and the history at once.
        history.replaceState(null, '', location.pathname)
        signIn({ Link: secret })
      } else if (session !== null) goTo('/')
    }
    followLink()
    // If a link is opened while this page is shown, only the fragment of the address changes.
    window.addEventListener('hashchange', followLink)
    return () => window.removeEventListener('hashchange', followLink)
  }, [session, signIn])
  const ways = options.data?.Ways ?? []
  const provider = options.data?.Provider ?? null
  const { pathname, search, hash } = location
  const here = pathname === LINK_PATH ? '/' : pathname + search + hash
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    const form = new FormData(event.currentTarget)
    signIn({ User: form.get('user'), Password: form.get('password') })
  }
  return (
    <main className="alone">
      <p className="brand">
        <span className="mark" aria-hidden="true" />
        Integration Host
      </p>
      <h1>Sign in</h1>
      {failure !== null && (
        <p className="failure" role="alert">
          {failure.message}.
        </p>
      )}
      {provider !== null && (
        <a className="primary" href={`/sign-in/oidc?to=${encodeURIComponent(here)}`}>
          Sign in at <Outside text={provider} />
        </a>
      )}
      {ways.includes('password') && (
        <form onSubmit={submit}>
          <label>
            User
            <input name="user" autoComplete="username" required />
          </label>
          <label>
            Password
            <input name="password" type="password" autoComplete="current-password" required />
          </label>
          <button type="submit" className="primary" disabled={isBusy}>
            {isBusy ? 'Signing in…' : 'Sign in'}
          </button>
        </form>
      )}
      {ways.includes('link') && (
        <div className="muted">
          <p>
            {isBusy
              ? 'Signing in…'
              : 'Open the link that the terminal printed when the host started. A link works once, within ten minutes.'}
          </p>
          {!isBusy && (
            <p>
              For a new link run <code>{COMMAND_LINE} console sign-in</code>.
            </p>
          )}
        </div>
      )}
    </main>
  )
}
