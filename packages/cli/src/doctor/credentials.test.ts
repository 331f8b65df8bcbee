import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { describe, expect, it } from 'vitest'
import { checkCredentials } from './credentials.ts'

const AT = '2026-11-21T08:00:00.000Z'
const credential = (realm: string, members: Partial<CredentialView> = {}): CredentialView => ({
  Name: `ACC-${realm}`,
  Environment: realm,
  Expiry: AT,
  Status: 'active',
  State: 'active',
  Version: 1,
  RefreshedAt: AT,
  Attempts: 0,
  ...members,
})
const faulted = (realm: string, State: CredentialView['State'], Code: string) =>
  credential(realm, { State, Status: 'faulted', Fault: { Code, Message: '', At: AT, Attempts: 1 } })

const checked = (...credentials: CredentialView[]) =>
  checkCredentials(credentials).map(({ verdict, check, found }) => `${verdict} ${check}: ${found}`)

describe('the check of companies by doctor', () => {
  it('doctor reports companies as ok if all are active', () => {
    expect(checked()).toEqual(['ok companies: none yet'])
    expect(checked(credential('1'), credential('2'))).toEqual(['ok companies: all 2 active'])
  })

  it('doctor counts faulted companies by fault class, and names at most three of them', () => {
    const lost = ['1', '2', '3', '4'].map((realm) =>
      faulted(realm, 'must_reconnect', realm === '1' ? 'hard_expired' : 'invalid_grant'),
    )
    expect(checked(...lost, faulted('5', 'failing', 'provider_unavailable'))).toEqual([
      'problem companies: 4 of 5 must be connected again (invalid_grant 3, hard_expired 1): ACC-1, ACC-2, ACC-3, …',
      'problem companies: 1 of 5 cannot be refreshed now (provider_unavailable 1): ACC-5',
    ])
  })

  it('doctor warns of companies whose refresh fails while their access tokens are valid', () => {
    expect(checked(credential('1', { Attempts: 2 }), credential('2'))).toEqual([
      `warning refreshes: the last refresh of 1 of 2 has failed; their access tokens are valid until ${AT} or longer: ACC-1`,
    ])
  })

  it('doctor warns of companies whose grant ends soon, and names the day on which each grant ends', () => {
    const expiring = credential('1', { State: 'expiring', HardExpiry: '2026-12-01T00:00:00.000Z' })
    expect(checked(expiring)).toEqual([
      'warning expiring: the grants of 1 of 1 end soon: ACC-1 (2026-12-01)',
    ])
    expect(checkCredentials([expiring])[0]?.remedy).toMatch(/credentials connect --realm 1\. /)
  })
})
