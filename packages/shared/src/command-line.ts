/**
 * How the command line is run in a checkout and in a project. With `--no`, npx runs only a program that is installed
 * there. Without it, npx would look the name up in the package registry, and install and run whatever is registered
 * under it.
 */
export const COMMAND_LINE = 'npx --no -- integration-host'
