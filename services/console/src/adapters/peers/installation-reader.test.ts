import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it } from 'vitest'
import { startFakeService } from '../../../test-support/fake-service.ts'
import { createInstallationReader } from './installation-reader.ts'
import { createServiceClient } from './service-client.ts'

const HASH = '0'.repeat(64)

/** Returns an audit entry about the company 42. */
const entry = (Seq: number, What: string) => ({
  Seq,
  At: '2026-11-23T10:00:00.000Z',
  Who: 'key console',
  What,
  Name: 'ACC-42',
  Version: 1,
  Outcome: 'ok',
  Previous: HASH,
  Hash: HASH,
})

describe('the names of the companies in the newest entries of the audit log', () => {
  it('the name of a company is read again only after a notable entry about it, and a removed company keeps its name', async () => {
    const audit = [entry(1, 'granted')]
    let label: string | null = 'Rosewood'
    await using service = await startFakeService(({ url }) => {
      if (url.pathname === '/audit')
        return {
          body: { items: audit, head: { Seq: audit.length, Hash: HASH }, next_before: null },
        }
      return label === null ? undefined : { body: { Label: label } }
    })
    const client = createServiceClient({
      name: 'fake',
      url: service.url,
      key: new Secret('key'),
      canActFor: false,
    })
    const reader = createInstallationReader(client, client)
    const names = async () => (await reader.readAudit()).names
    const readNames = () =>
      service.requests.filter(({ url }) => url.pathname === '/credentials/ACC-42').length

    expect(await names()).toEqual({ 42: 'Rosewood' })
    label = 'Rosewood & Sons'
    audit.unshift(entry(2, 'handed_out'))
    expect(await names()).toEqual({ 42: 'Rosewood' })
    expect(readNames()).toBe(1)
    audit.unshift(entry(3, 'labelled'))
    expect(await names()).toEqual({ 42: 'Rosewood & Sons' })
    expect(readNames()).toBe(2)
    label = null
    audit.unshift(entry(4, 'removed'))
    expect(await names()).toEqual({ 42: 'Rosewood & Sons' })
    expect(readNames()).toBe(3)
  })
})
