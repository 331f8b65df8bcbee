import type { Command } from '@integration-host/cli/command'
import { dev } from './dev.ts'
import { init } from './init.ts'
import { start } from './start.ts'

/** The commands that run the embedded host. They extend the command line of an installation. */
export const hostCommands: ReadonlyMap<string, Command> = new Map([
  ['init', init],
  ['dev', dev],
  ['start', start],
])
