#!/usr/bin/env node
/*
 * `npx --no -- integration-host …` runs this file in the checkout. It starts the CLI through bootstrap.mjs, so that Node 20 and
 * npm are enough. npx links this file into its cache and sends no request to a package registry.
 */
// bootstrap.mjs runs every program in the root of the repository. Therefore the CLI resolves file names in its
// arguments against the folder in INIT_CWD.
process.env['INIT_CWD'] = process.cwd()
process.argv.splice(2, 0, 'host/src/cli.ts')
await import('./bootstrap.mjs')
