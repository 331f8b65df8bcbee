/** Notifications and signatures as Intuit sends them. They are built without the code of the receiver. */
import { createHmac } from 'node:crypto'

export const TOKEN = '3f0a1c5e-verifier-token-of-the-tests'
export const REALM = '9341453908059889'

/** Returns the header `intuit-signature` of a body. */
export const signatureOf = (body: string | Buffer, token = TOKEN): string =>
  createHmac('sha256', token).update(body).digest('base64')

/** Returns a change in the legacy format. `change` overrides single members. */
export const legacyChange = (change: Readonly<Record<string, unknown>> = {}) => ({
  name: 'Invoice',
  id: '129',
  operation: 'Update',
  lastUpdated: '2026-11-23T17:05:09.000Z',
  ...change,
})

export const legacyNotification = (
  changes: readonly unknown[] = [legacyChange()],
  realmId: unknown = REALM,
) => ({ eventNotifications: [{ realmId, dataChangeEvent: { entities: changes } }] })

/** Returns one CloudEvent. `change` overrides single members. */
export const cloudEvent = (change: Readonly<Record<string, unknown>> = {}) => ({
  specversion: '1.0',
  id: '88cd52aa-33b6-4351-9aa4-47572edbd068',
  source: 'intuit.dsnBgbseACLLRZNxo2dfc4evmEJdxde58xeeYcZliOU=',
  type: 'qbo.invoice.updated.v1',
  datacontenttype: 'application/json',
  time: '2026-11-23T17:05:09.179851517Z',
  intuitentityid: '129',
  intuitaccountid: REALM,
  data: {},
  ...change,
})

/** The id of the change that `legacyChange()` and `cloudEvent()` report. */
export const CHANGE_ID = `Invoice-129@2026-11-23T17:05:09Z/${REALM}`
