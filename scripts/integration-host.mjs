#!/usr/bin/env node
/*
 * `npx integration-host …` runs this file in the checkout. It starts the CLI through bootstrap.mjs like the npm
 * scripts, so that Node 20 and npm are enough. npx links this file into its cache, so npx sends no request to a
 * package registry.
 */
// The CLI resolves file names in its arguments against the folder in INIT_CWD, because bootstrap.mjs runs every program
// in the repository's root.
process.env['INIT_CWD'] = process.cwd()
process.argv.splice(2, 0, 'host/src/cli.ts')
await import('./bootstrap.mjs')
