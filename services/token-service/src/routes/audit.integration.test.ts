/** Tests of the newest entries of the audit log over HTTP and real Redis. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Installation, startInstallation } from '../../test-support/installation.ts'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import type { ServiceOptions } from '../../test-support/service-fixture.ts'

let provider: ScriptedProvider
let cleanup: AsyncDisposableStack

beforeEach(async () => {
  cleanup = new AsyncDisposableStack()
  provider = cleanup.use(await startScriptedProvider())
})
afterEach(() => cleanup.disposeAsync())

const install = (options: Partial<ServiceOptions> = {}): Promise<Installation> =>
  startInstallation(cleanup, { provider, ...options })

describe('the newest audit entries', () => {
  interface Page {
    readonly items: readonly { readonly Seq: number; readonly Name: string }[]
    readonly next_before: number | null
  }
  const numbers = ({ items }: Page): number[] => items.map(({ Seq }) => Seq)

  it('GET /audit returns the newest audit entries of all credentials or of one credential, page by page, the newest first', async () => {
    const here = await install()
    const page = async (query: string): Promise<Page> =>
      (await here.service.ask(`/audit?${query}`)).body as unknown as Page
    for (const realm of ['1', '2', '1', '3']) await here.service.connect(realm)
    await eventually(async () => expect((await page('')).items).toHaveLength(4))
    expect(numbers(await page(''))).toEqual([4, 3, 2, 1])
    const first = await page('limit=3')
    expect([numbers(first), first.next_before]).toEqual([[4, 3, 2], 2])
    const second = await page(`limit=3&before=${first.next_before}`)
    expect([numbers(second), second.next_before]).toEqual([[1], null])
    const ofOne = await page('name=ACC-1&limit=1')
    expect([numbers(ofOne), ofOne.next_before]).toEqual([[3], 3])
    expect(numbers(await page('name=ACC-1&limit=1&before=3'))).toEqual([1])
    expect(await page('name=ACC-9')).toMatchObject({ items: [], next_before: null })
  })

  it('a page of GET /audit searches at most 5,000 audit entries for a rare name, and a later page finds the entry', async () => {
    const here = await install()
    const filler = { At: new Date().toISOString(), Who: 'routine', What: 'refreshed', Version: 1 }
    const hashes = { Outcome: 'ok', Previous: 'a'.repeat(64), Hash: 'b'.repeat(64) }
    for (let from = 0; from < 20_000; from += 10_000) {
      const batch = here.redis.redis.pipeline()
      for (let Seq = from + 1; Seq <= from + 10_000; Seq += 1) {
        const Name = Seq === 1 ? 'ACC-1' : `ACC-other-${Seq}`
        const entry = JSON.stringify({ ...filler, Name, ...hashes, Seq })
        batch.xadd('credentials:audit', `${Seq}-0`, 'entry', entry)
      }
      await batch.exec()
    }
    const pages: { readonly found: number[]; readonly before: number }[] = []
    for (let before: number | null = 20_001; before !== null;) {
      const page = (await here.service.ask(`/audit?name=ACC-1&before=${before}`))
        .body as unknown as Page
      pages.push({ found: numbers(page), before })
      before = page.next_before
    }
    expect(pages).toEqual([
      { before: 20_001, found: [] },
      { before: 15_001, found: [] },
      { before: 10_001, found: [] },
      { before: 5_001, found: [1] },
    ])
  })

  it('a service key that is bound to realms can read the audit entries of these realms, but not the whole audit log', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'audit-'))
    const path = join(folder, 'keys.json')
    const key = 'bounded-key-0123456789-0123456789-0123'
    const sha256 = createHash('sha256').update(key).digest('hex')
    const entry = { id: 'bounded', sha256, scopes: ['audit:read'], realms: ['2'] }
    await writeFile(path, JSON.stringify([entry]))
    const here = await install({ env: { SERVICE_KEYS_FILE: path } })
    for (const realm of ['1', '2', '1']) await here.service.connect(realm)
    const page = (query: string) =>
      here.service.ask(`/audit?${query}`, { headers: { Authorization: `Bearer ${key}` } })
    await eventually(async () =>
      expect((await page('')).body).toMatchObject({ items: [{ Seq: 2, Name: 'ACC-2' }] }),
    )
    expect((await page('name=ACC-1')).status).toBe(403)
    expect((await page('name=ACC-2')).status).toBe(200)
    expect((await page('after=0')).status).toBe(403)
    await rm(folder, { recursive: true })
  })
})
