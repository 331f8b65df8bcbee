import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'

/** A command's name followed by its arguments. */
export type Command = readonly string[]

export interface CommandLog {
  /** Stops recording and resolves with the recorded commands in order. */
  end(): Promise<readonly Command[]>
}

const LINE = /^\+[\d.]+ \[\d+ (?<source>\S+)\] (?<command>.*)$/

/**
 * Records every command that clients send to a Redis server, with Redis's `MONITOR`. Commands that Lua scripts call
 * are not included. ioredis is not used here, because its monitor reports a protocol error if a command arrives
 * together with the first reply.
 */
export async function logCommands(url: string): Promise<CommandLog> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  const received = text(socket)
  await once(socket, 'connect')
  socket.write('MONITOR\r\n')
  return {
    async end() {
      // Redis sends all earlier commands to the monitor before it replies to QUIT and closes the connection.
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
