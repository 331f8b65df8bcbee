// Writes the bundle of the browser's program, from which the console of an image is served. The Dockerfile runs this
// script.
import * as esbuild from 'esbuild'
import { BUNDLE, buildApp, writeApp } from './build-app.ts'

await writeApp(await buildApp(esbuild), BUNDLE)
