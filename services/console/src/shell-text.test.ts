import { execFileSync } from 'node:child_process'
import { COMMAND_LINE as INSTALLED } from '@integration-host/shared/command-line'
import { describe, expect, it } from 'vitest'
import {
  COMMAND_LINE,
  curlCommand,
  doctorCommand,
  queueCommand,
  quoted,
  showCommand,
} from '../app/shell-text.ts'

/** Runs a command whose programs were replaced by `show`, and returns the arguments that the shell passes to `show`. */
const argumentsOf = (command: string): readonly string[] =>
  execFileSync('/bin/sh', ['-c', `show() { printf '%s\\0' "$@"; }; ${command}`])
    .toString()
    .split('\0')
    .slice(0, -1)

const HOSTILE = [`it's`, '$(id)', '`id`', 'a b;c', '"', '\\', '../x', '-rf', '!', '😀', '~', '*']

describe('the commands that a person copies from the console', () => {
  it('the copied commands run the command line as all other texts do', () => {
    expect(COMMAND_LINE).toBe(INSTALLED)
  })

  it.each(HOSTILE)('a copied command passes the id %j to the program unchanged', (id) => {
    expect(argumentsOf(`show ${quoted(id)}`)).toEqual([id])
    const shown = showCommand('npx', 'OrderProcess', id, 2)
    const command = shown.replace('npx --no -- integration-host', 'show')
    expect(argumentsOf(command)).toEqual([
      'transactions',
      'show',
      '--process',
      'OrderProcess',
      '--replay',
      '2',
      '--',
      id,
    ])
    const [, request = ''] = curlCommand('OrderProcess', id, 2).split(' | ')
    expect(argumentsOf(request.replace('curl', 'show'))).toEqual([
      '-H',
      '@-',
      `/processes/OrderProcess/transactions/${encodeURIComponent(id)}?replay=2`,
    ])
  })

  it.each([
    ['npx', 'npx --no -- integration-host', 'npx --no -- integration-host doctor'],
    ['compose', 'docker compose run --rm cli', 'docker compose run --rm doctor'],
  ] as const)('the commands begin as the command line is run with %s', (by, program, doctor) => {
    expect(showCommand(by, 'P', '1', 0)).toBe(
      `${program} transactions show --process P --replay 0 -- 1`,
    )
    expect(queueCommand(by, 'OrderProcess')).toBe(
      `${program} transactions queue 1 --process OrderProcess --data 1`,
    )
    expect(queueCommand(by, 'ReportSale')).toBe(
      `${program} transactions queue 1 --process ReportSale --data '{}'`,
    )
    expect(doctorCommand(by)).toBe(doctor)
  })

  it('the copied curl command reads the key from a variable, and no argument contains the key', () => {
    const command = curlCommand('OrderProcess', '66', 0).replace('curl', 'cat; show')
    const output = execFileSync('/bin/sh', ['-c', `show() { :; }; ${command}`], {
      env: { SERVICE_API_KEY: 'the-key' },
    })
    expect(output.toString()).toBe('Authorization: Bearer the-key\n')
  })
})
