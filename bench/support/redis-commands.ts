import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'

/** A command's name followed by its arguments. */
export type Command = readonly string[]

export interface CommandLog {
  /** Ends the log and resolves with its commands in order. */
  end(): Promise<readonly Command[]>
}

const LINE = /^\+[\d.]+ \[\d+ (?<source>\S+)\] (?<command>.*)$/

/**
 * Records every command that clients send to a Redis, by its `MONITOR`; calls of scripts inside the server are left out.
 * Does not use ioredis, whose monitor mistakes a command that arrives together with the first reply for a protocol error.
 */
export async function logCommands(url: string): Promise<CommandLog> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  const received = text(socket)
  await once(socket, 'connect')
  socket.write('MONITOR\r\n')
  return {
    async end() {
      // The reply, and the end of the connection, come after all commands that were sent before.
      socket.write('QUIT\r\n')
      return (await received).split('\r\n').flatMap((line) => {
        const { source = 'lua', command = '' } = LINE.exec(line)?.groups ?? {}
        return source === 'lua' ? [] : [argumentsOf(command)]
      })
    },
  }
}

const argumentsOf = (command: string): Command =>
  Array.from(command.matchAll(/"((?:[^"\\]|\\.)*)"/g), ([, argument = '']) => argument)
