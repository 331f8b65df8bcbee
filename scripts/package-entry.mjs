#!/usr/bin/env node
/*
 * `npx --no -- integration-host …` runs this file in the installed package, where it is named integration-host.mjs. An old Node
 * cannot parse the program, so the version of Node is checked before the program is imported.
 */
import { readFileSync } from 'node:fs'
import { isAtLeast } from './node-version.mjs'
import { watchForOrphaning } from './npm-parent.mjs'

/** @type {{ engines: { node: string } }} */
const { engines } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
const needed = engines.node.replace('>=', '')
if (isAtLeast(process.versions.node, needed)) {
  // npx and npm set this variable to the caller's folder. Only a checkout needs this variable. The installed package
  // already runs in the caller's folder.
  delete process.env['INIT_CWD']
  // If npx or npm has ended, the program shuts down as if it had received SIGTERM.
  watchForOrphaning(() => process.kill(process.pid, 'SIGTERM'))
  await import('../host/src/cli.js')
} else {
  console.error(`integration-host needs Node ${needed} or newer, this is ${process.version}.`)
  process.exitCode = 1
}
