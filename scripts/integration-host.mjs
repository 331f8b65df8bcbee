#!/usr/bin/env node
/*
 * `npx integration-host …` in the checkout: the command line, started as the npm scripts are, so that Node 20 and
 * npm are enough. npx links this file into its cache and finds it there without asking a registry.
 */
// Names of files mean the folder of the caller, while bootstrap.mjs starts everything in the root.
process.env['INIT_CWD'] = process.cwd()
process.argv.splice(2, 0, 'packages/cli/src/main.ts')
await import('./bootstrap.mjs')
