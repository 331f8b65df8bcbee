#!/usr/bin/env node
/*
 * `npx integration-host …` runs this file in the installed package, where it is named integration-host.mjs. The version
 * of Node is checked before the program is imported, because an old Node cannot parse the program.
 */
import { readFileSync } from 'node:fs'
import { isAtLeast } from './node-version.mjs'
import { watchForOrphaning } from './npm-parent.mjs'

/** @type {{ engines: { node: string } }} */
const { engines } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
const needed = engines.node.replace('>=', '')
if (isAtLeast(process.versions.node, needed)) {
  // npx and npm set this variable to the folder of the caller, which a checkout needs. In the package the program
  // already runs in this folder.
  delete process.env['INIT_CWD']
  // If npx or npm has ended, the program shuts down as if it had received SIGTERM.
  watchForOrphaning(() => process.kill(process.pid, 'SIGTERM'))
  await import('../host/src/cli.js')
} else {
  console.error(`integration-host needs Node ${needed} or newer, this is ${process.version}.`)
  process.exitCode = 1
}
