import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import type { ConsoleBrowser } from './console-browser.ts'

/**
 * Connects a company and revokes its grant. Then requests refreshes until token-service reports that the company must be
 * reconnected. token-service retries a rejected refresh token a few times before that.
 */
export async function loseCompany({ host, sandbox }: ConsoleBrowser): Promise<void> {
  await connectCompany(host, { stage() {}, line() {} })
  await sandbox(`realms/${COMPANY.realm}/revoke`)
  const credential = `${host.tokenService}/credentials/ACC-${COMPANY.realm}`
  const headers = {
    Authorization: `Bearer ${host.serviceKey}`,
    'Content-Type': 'application/json',
  }
  await eventually(async () => {
    const refreshed = await fetch(`${credential}/refresh`, { method: 'POST', headers, body: '{}' })
    expect(refreshed.status).toBe(424)
    const { State } = (await (await fetch(credential, { headers })).json()) as { State: string }
    expect(State).toBe('must_reconnect')
  })
}
