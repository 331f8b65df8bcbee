import { type BuiltApp, buildApp } from '@integration-host/console/build-app'
import { build } from 'esbuild'

/** Bundles the browser's program of the console from the sources. */
export const builtConsole = (): Promise<BuiltApp> => buildApp(build)
