// Bundles the program that runs in the browser, and writes the bundle. The Dockerfile runs this script, so that the
// console in the image can serve the bundle.
import * as esbuild from 'esbuild'
import { BUNDLE, buildApp, writeApp } from './build-app.ts'

await writeApp(await buildApp(esbuild), BUNDLE)
