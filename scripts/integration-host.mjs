#!/usr/bin/env node
/*
 * `npx integration-host …` in the checkout: starts the command line through bootstrap.mjs like the npm scripts, so that
 * Node 20 and npm are enough. npx links this file into its cache and finds it there without a request to a registry.
 */
// File names are relative to the caller's folder, but bootstrap.mjs runs every program in the root.
process.env['INIT_CWD'] = process.cwd()
process.argv.splice(2, 0, 'packages/cli/src/main.ts')
await import('./bootstrap.mjs')
