import { globSync, readFileSync } from 'node:fs'
import { providerFaultClasses } from '@integration-host/shared/provider-profile/provider-fault'
import { describe, expect, it } from 'vitest'
import { CLASSES, failureRemedy, isDataRejected } from './error-class.ts'

describe('a failure for which the console offers a copy with changes first', () => {
  it.each(['http_400', 'http_405', 'http_422', 'input_invalid', 'realm_missing'])(
    'the class %s means that the same data is rejected again',
    (errorClass) => {
      expect(isDataRejected(errorClass)).toBe(true)
      expect(failureRemedy(errorClass)).toContain('Queue a copy')
    },
  )

  it.each(['http_429', 'http_503', 'http_302', 'network', 'step_threw', null])(
    'the class %s does not mean that the data is rejected',
    (errorClass) => {
      expect(isDataRejected(errorClass)).toBe(false)
      expect(failureRemedy(errorClass)).not.toContain('Queue a copy')
    },
  )
})

const COORDINATOR = new URL('../../../coordinator/src/', import.meta.url)

/** Returns the texts of the coordinator's sources without the tests. */
const sources = (): readonly string[] =>
  globSync('**/*.ts', { cwd: COORDINATOR })
    .filter((file) => !/\.(?:test|contract)\.ts$|test-support/.test(file))
    .map((file) => readFileSync(new URL(file, COORDINATOR), 'utf8'))

/** A value in a source, such as `'no_answer'`, `isSent ? NO_RESPONSE : 'network'` or a template. */
const VALUE = /\b[eE]rrorClass(?:: | = )([^,;\n}]+)/g
/** The first text among the parameters of a function that fails a step or a run with an error class. */
const PARAMETER = /\b(?:failed|failure|failRun)\(\s*(?:[\w.]+,\s*)*('\w+')/g
/** A constant that may be used as a value. */
const CONSTANT = /^(?:export )?const ([A-Z_]+) = '(\w+)'$/gm

/** Returns the error classes in the sources, except the classes `http_…`. */
function classesIn(texts: readonly string[]): readonly string[] {
  const constants = new Map(
    texts.flatMap((text) => [...text.matchAll(CONSTANT)].map(([, name = '', is]) => [name, is])),
  )
  const values = texts.flatMap((text) =>
    [...text.matchAll(VALUE), ...text.matchAll(PARAMETER)].map(([, value = '']) => value),
  )
  const found = values.flatMap((value) => [
    ...[...value.matchAll(/'([a-z_]+)'/g)].map(([, name]) => name),
    ...[...value.matchAll(/\b[A-Z][A-Z_]+\b/g)].map(([name]) => constants.get(name)),
  ])
  return [...new Set(found.filter((name) => name !== undefined))]
}

describe('the meanings of the error classes of the coordinator', () => {
  it('every error class in the sources of the coordinator has a meaning, and so has every class of provider faults', () => {
    const stored = [...classesIn(sources()), ...Object.keys(providerFaultClasses)]
    expect(stored.filter((name) => !CLASSES.has(name))).toEqual([])
  })

  it('the search for error classes in the sources finds classes in every form in which the sources have them', () => {
    expect(classesIn(sources())).toEqual(
      expect.arrayContaining([
        'attempts_used_up', // the first parameter of a function
        'secret_in_request', // the second parameter
        'step_unknown', // the third parameter
        'change_feed_rejected', // a member of an object
        'response_invalid', // a constant named errorClass
        'network', // one of two values
        'no_answer', // a constant, as one of two values
        'step_waits', // a constant
        'deadline_exceeded', // a constant, as a member of a row
      ]),
    )
  })

  it.each([
    'attempts_used_up',
    'payload_unreadable',
    'target_held',
    'webhook_address_refused',
    'webhook_receiver_removed',
    ...Object.keys(providerFaultClasses),
    'moon_phase',
    null,
  ])('the remedy for the class %s does not blame the code of the step', (errorClass) => {
    expect(failureRemedy(errorClass)).toMatch(/^[A-Z].*\.$/)
    expect(failureRemedy(errorClass)).not.toContain('code')
  })
})
