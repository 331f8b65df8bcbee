import { useEffect, useId, useRef, useState } from 'react'
import type { ConnectLinkView } from '../../src/contracts/companies.ts'
import { call } from '../api.ts'
import { full } from '../clock.ts'
import { copy } from '../notice.ts'
import { ActionButton } from './action-button.tsx'
import { companyName, CompanyNameField, type NamedCompany } from './company.tsx'

const LIFETIMES = [
  { hours: 1, text: '1 hour' },
  { hours: 24, text: '1 day' },
  { hours: 168, text: '7 days' },
] as const

/** Creates a connect link for the given company, or for any company if none is given, and shows the link. */
export function ConnectButton({
  company,
  isPrimary = false,
}: {
  readonly company?: NamedCompany
  /** Whether this is the action that helps, among the actions beside it. */
  readonly isPrimary?: boolean
}) {
  const [link, setLink] = useState<ConnectLinkView | null>(null)
  return (
    <>
      <ActionButton
        verb="Make a link"
        label={company === undefined ? 'Connect a company' : 'Reconnect'}
        {...(isPrimary && { className: 'primary' })}
        object={
          company === undefined ? 'to connect a company' : `to reconnect ${companyName(company)}`
        }
        consequence={`The link leads to the page of the provider, where the owner of the company signs in. It connects once.${
          company === undefined ? '' : ' Only this company is accepted.'
        }`}
        reason="none"
        act={async (form, key) => {
          const label = form.get('label')
          setLink(
            await call<ConnectLinkView>(
              'POST',
              '/connect-links',
              {
                Hours: Number(form.get('hours')),
                ...(company !== undefined && { Realm: company.Realm }),
                ...(typeof label === 'string' && label.trim() !== '' && { Label: label.trim() }),
              },
              key,
            ),
          )
        }}
        done=""
      >
        {company === undefined && <CompanyNameField>Name of the company</CompanyNameField>}
        <label>
          Valid for
          <select name="hours" defaultValue="24">
            {LIFETIMES.map(({ hours, text }) => (
              <option key={hours} value={hours}>
                {text}
              </option>
            ))}
          </select>
        </label>
      </ActionButton>
      {link !== null && <LinkDialog link={link} onClose={() => setLink(null)} />}
    </>
  )
}

interface LinkDialogProps {
  readonly link: ConnectLinkView
  readonly onClose: () => void
}

/**
 * Shows a new connect link in a dialog. In the page itself, the link would move other elements, and would stay visible
 * after it was used.
 */
function LinkDialog({ link, onClose }: LinkDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  const title = useId()
  useEffect(() => dialog.current?.showModal(), [])
  return (
    <dialog ref={dialog} aria-labelledby={title} onClose={onClose}>
      <form method="dialog">
        <h2 id={title}>The connect link</h2>
        <p>
          Send this link to the owner of the company, or open it here: it leads to the page of the
          provider. It connects once, until {full(link.ExpiresAt)}. It is not shown again.
        </p>
        <p>
          <code>{link.Url}</code>
        </p>
        <div className="buttons">
          <button type="submit">Close</button>
          <button type="button" onClick={() => copy(link.Url)}>
            Copy
          </button>
          <a
            className="primary"
            href={link.Url}
            target="_blank"
            rel="noopener noreferrer"
            onClick={() => dialog.current?.close()}
          >
            Open in a new tab
          </a>
        </div>
      </form>
    </dialog>
  )
}
