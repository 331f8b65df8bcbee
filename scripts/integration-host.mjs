#!/usr/bin/env node
/*
 * Runs as `npx integration-host …` in the checkout: starts the command line through bootstrap.mjs like the npm
 * scripts, so that Node 20 and npm are enough. npx links this file into its cache, so it needs no request to a
 * registry.
 */
// The caller's file names are relative to the caller's folder, but bootstrap.mjs runs every program in the
// repository's root.
process.env['INIT_CWD'] = process.cwd()
process.argv.splice(2, 0, 'packages/cli/src/main.ts')
await import('./bootstrap.mjs')
