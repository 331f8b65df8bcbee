import type { Caller } from '@integration-host/shared/access/caller'
import type { CredentialView } from '@integration-host/shared/contracts/credential'

/**
 * Returns a credential as the response of a request that has changed it may show it to the caller. Without
 * `credentials:read`, the label, the name, the tags and the fault are left out, because another request may have stored them. What
 * the request itself has brought is shown.
 *
 * @param brought the label and tags of the request
 */
export function changedCredential(
  caller: Caller,
  view: CredentialView,
  brought: { readonly label?: unknown; readonly tags?: unknown } = {},
): CredentialView {
  if (caller.has('credentials:read')) return view
  const { Label, Tags, CompanyName: _name, Fault: _fault, ...shown } = view
  return {
    ...shown,
    ...(brought.label !== undefined && Label !== undefined && { Label }),
    ...(brought.tags !== undefined && Tags !== undefined && { Tags }),
  }
}
