/** Bundles the browser script of the console from its sources. */
export { loadApp as builtConsole } from '@integration-host/console/build-app'
