import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { conditionNames } from './contracts/now.ts'

const text = readFileSync(join(import.meta.dirname, '../../../docs/runbook.md'), 'utf8')
/** The sections of the runbook by their headings. */
const sections = new Map(
  text.split(/^##+ /m).map((section) => {
    const [heading = '', ...lines] = section.split('\n')
    return [heading, lines.join('\n')]
  }),
)
/** A command that the runbook names, also without the name of the program. */
const COMMAND =
  /`(?:npx --no -- )?(?:integration-host |credentials |transactions |dead-letters |processes )/

describe('the runbook', () => {
  it.each(conditionNames)('the runbook has a section on the condition %s', (name) => {
    expect([...sections.keys()]).toContain(name)
  })

  it.each([
    'CredentialsFaulted',
    'TokenNearExpiry',
    'RefreshesFailing',
    'GrantsExpiring',
    'A credential is faulted',
    'RunsFailed',
    'RunsInDoubt',
    'RunsWaiting',
    'DeadMessages',
    'ProcessPaused',
  ])(
    'the section %s of the runbook says what to do in the console before it names a command',
    (heading) => {
      const section = sections.get(heading) ?? ''
      // The names of pages and buttons are in italics.
      const page = section.search(/(?<!\*)\*[^*\n]+\*(?!\*)/)
      const command = section.search(COMMAND)
      expect(page).toBeGreaterThanOrEqual(0)
      expect(command === -1 || page < command).toBe(true)
    },
  )
})
