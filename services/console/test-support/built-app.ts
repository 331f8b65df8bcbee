import { build } from 'esbuild'
import { type BuiltApp, buildApp } from '../src/build-app.ts'

/** Bundles the browser's program from the sources. */
export const builtApp = (): Promise<BuiltApp> => buildApp(build)
