import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type FakeConsole, KEYS, startFakeConsole } from './fake-console.ts'
import type { FakeRun } from './fake-installation.ts'
import { expectNoSecrets } from './secrets.ts'

describe('the check that no browser has received a secret', () => {
  let at: FakeConsole
  let texts: readonly string[]

  beforeAll(async () => {
    at = await startFakeConsole()
    at.fake.add(['an-id-in-a-response'])
    const page = await at.signIn()
    await page.goto(`${at.url}/runs`)
    await page.getByRole('link', { name: 'an-id-in-a-response' }).waitFor()
    await page.getByText('live', { exact: true }).waitFor()
    at.fake.change([[at.fake.runs[0] as FakeRun, 'Failed']])
    await eventually(() => expect(at.sent.all().join()).toContain('event: runs'))
    texts = at.sent.all()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => expect(at.problems).toEqual([]))

  it.each([
    ['in the response of a route', 'an-id-in-a-response'],
    ['in a frame of the event stream', /event: runs\ndata: .*"an-id-in-a-response"/],
  ])('the check finds a text %s', (_, text) => {
    expect(() => expectNoSecrets(texts, KEYS)).not.toThrow()
    expect(() => expectNoSecrets(texts, { name: text })).toThrow('received the secret name')
  })

  it('the check fails if it has no responses', () => {
    expect(() => expectNoSecrets([], KEYS)).toThrow('are missing')
  })
})
