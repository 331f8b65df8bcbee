import { Realm } from '@integration-host/shared/contracts/realm'
import { type Companies, type Company, CompanyName } from '../company/companies.ts'

/** The decision of the user, or of a script that acts for the user, on an authorization request. */
export type Decision =
  | { readonly kind: 'connect'; readonly company: Company }
  | { readonly kind: 'deny' }
  /** The request contains no decision yet, so the provider shows the authorization page. */
  | { readonly kind: 'open' }
  | { readonly kind: 'invalid'; readonly reason: string }

/**
 * The value of the form field `company` if the user enters a new company. A realm id must not contain a plus sign, so
 * no existing company can have this value.
 */
export const INVENTED = '+invented'

/**
 * Reads the decision from the parameters. Scripts send `sandbox_company=<realm>[:<name>]` or `sandbox_company=deny`;
 * the form of the page sends `decision`, `company`, `company_realm` and `company_name`.
 */
export function readDecision(parameters: URLSearchParams, companies: Companies): Decision {
  const scripted = parameters.get('sandbox_company')
  if (scripted !== null) {
    if (scripted === 'deny') return { kind: 'deny' }
    const [realm = '', ...name] = scripted.split(':')
    return connect(realm, name.join(':'), companies)
  }
  switch (parameters.get('decision')) {
    case null:
      return { kind: 'open' }
    case 'cancel':
      return { kind: 'deny' }
    case 'connect': {
      const chosen = parameters.get('company') ?? ''
      return chosen === INVENTED
        ? connect(
            parameters.get('company_realm')?.trim() ?? '',
            parameters.get('company_name') ?? '',
            companies,
          )
        : connect(chosen, '', companies)
    }
    default:
      return { kind: 'invalid', reason: 'Choose Connect or Cancel.' }
  }
}

function connect(realm: string, name: string, companies: Companies): Decision {
  if (!Realm.safeParse(realm).success) {
    return {
      kind: 'invalid',
      reason: 'A realm id has 1 to 64 characters: letters, digits, - and _.',
    }
  }
  const given = name === '' ? (companies.find(realm)?.name ?? `Company ${realm}`) : name
  const parsed = CompanyName.safeParse(given)
  if (!parsed.success) {
    return {
      kind: 'invalid',
      reason: 'A company name has 1 to 100 characters, none of them a control character.',
    }
  }
  return { kind: 'connect', company: { realm, name: parsed.data } }
}
