import { type BuiltApp, buildApp } from '@integration-host/console/build-app'
import * as esbuild from 'esbuild'

/** Bundles the browser script of the console from its sources. */
export const builtConsole = (): Promise<BuiltApp> => buildApp(esbuild)
