// Bundles the program that runs in the browser, and writes the bundle into the folder of the first argument, or to where the
// console looks for it. The Dockerfile and scripts/pack.ts run this script.
import * as esbuild from 'esbuild'
import { BUNDLE, buildApp, writeApp } from './build-app.ts'

await writeApp(await buildApp(esbuild), process.argv[2] ?? BUNDLE)
