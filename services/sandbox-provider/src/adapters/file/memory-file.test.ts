import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { createCounters } from '../../control/counters.ts'
import { createSettings } from '../../control/settings.ts'
import { createGrants } from '../../grant/grants.ts'
import { openMemoryFile } from './memory-file.ts'

const folder = mkdtempSync(join(tmpdir(), 'sandbox-'))
afterAll(() => rmSync(folder, { recursive: true }))

/** Opens the state file, calls `work` with the grants from the file, and closes the file. */
async function withGrants<T>(
  path: string,
  work: (grants: ReturnType<typeof createGrants>) => T,
): Promise<T> {
  await using file = openMemoryFile(path)
  const settings = createSettings()
  const grants = createGrants({
    now: Date.now,
    random: () => crypto.randomUUID(),
    settings: () => settings.current(),
    counters: createCounters(),
    memory: file.memory.grants,
  })
  const result = work(grants)
  file.changed()
  return result
}

describe('the state file of the sandbox provider', () => {
  it('the sandbox provider keeps the grant of a company across a restart', async () => {
    const path = join(folder, 'kept')
    const consent = {
      realm: '1',
      scope: [],
      redirectUri: 'http://127.0.0.1/',
      nonce: null,
      codeChallenge: null,
    }
    const issued = await withGrants(path, (grants) =>
      grants.exchangeCode(grants.issueCode(consent) ?? '', {
        redirectUri: consent.redirectUri,
        codeVerifier: null,
      }),
    )
    const next = await withGrants(path, (grants) => {
      expect(grants.accessToken(issued?.accessToken ?? '')).toMatchObject({ realm: '1' })
      return grants.refresh(issued?.refreshToken ?? '')
    })
    // After the file was read, all tokens of a grant must still refer to one grant object. Otherwise the revocation of
    // a token that was issued after the restart would not invalidate the tokens that were issued before.
    await withGrants(path, (grants) => {
      grants.revokeToken(next?.refreshToken ?? '')
      expect(grants.accessToken(issued?.accessToken ?? '')).toBeNull()
    })
    expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it.each(['', 'not ours', '{}'])(
    'opening a state file that contains %j throws an error that names the file, and leaves the file unchanged',
    (content) => {
      const path = join(folder, crypto.randomUUID())
      writeFileSync(path, content)
      expect(() => openMemoryFile(path)).toThrow(path)
      expect(readFileSync(path, 'utf8')).toBe(content)
    },
  )
})
