import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { checkSpace, type Space, watchDataFolder } from './data-folder.ts'

const GB = 1_000_000_000
const MB = 1_000_000

/**
 * Runs the first check of the data folder and resolves with the state that `/health/ready` would
 * report.
 */
async function reportAfter(read: () => Promise<Space>) {
  const health = createHealth(createLogger('test', 'silent'))
  using _ = watchDataFolder('/data', health.dependency('data-folder', 'optional'), read)
  return await eventually(async () => {
    const { status: readiness, dependencies } = health.report()
    expect(dependencies['data-folder']?.status).not.toBe('connecting')
    return { readiness, ...dependencies['data-folder'] }
  })
}

describe('the check of the free space in the data folder', () => {
  it.each([
    [{ free: 50 * GB, total: 100 * GB }, false, 'ok'],
    [{ free: 999 * MB, total: 100 * GB }, false, 'warning'],
    [{ free: 99 * MB, total: 100 * GB }, true, 'warning'],
    [{ free: 30 * MB, total: 64 * MB }, false, 'ok'],
    [{ free: 5 * MB, total: 64 * MB }, false, 'warning'],
    [{ free: 0, total: 64 * MB }, true, 'warning'],
  ])(
    'for the disk space %j, the check returns isShort = %s and the verdict %s',
    (space, isShort, verdict) => {
      expect(checkSpace(space)).toMatchObject({ isShort, result: { verdict } })
    },
  )

  it('the check of the data folder reports a full disk with its free and total size, and the service stays ready', async () => {
    expect(await reportAfter(async () => ({ free: 12 * MB, total: 20 * GB }))).toMatchObject({
      readiness: 'ready',
      status: 'down',
      reason: 'the disk is full: 12 MB of 20000 MB are free',
      notes: [expect.stringContaining('disk: 12 MB of 20000 MB are free. Free space')],
    })
  })

  it('the check of the data folder reports the error code if the folder cannot be read', async () => {
    const denied = Object.assign(new Error('a path'), { code: 'EACCES' })
    expect(await reportAfter(() => Promise.reject(denied))).toMatchObject({
      reason: 'the folder cannot be used (EACCES)',
    })
  })

  it('the check of the data folder reports the free space of the disk even if the folder does not exist yet', async () => {
    const health = createHealth(createLogger('test', 'silent'))
    using _ = watchDataFolder(`${import.meta.dirname}/not/yet`, health.dependency('data-folder'))
    await eventually(async () =>
      expect(health.report().dependencies['data-folder']?.status).toBe('up'),
    )
  })
})
