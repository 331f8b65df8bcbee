import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'

/** Arguments of one command, the command's name first. */
export type Command = readonly string[]

export interface CommandLog {
  /** Ends the log and resolves with what is in it, in order. */
  end(): Promise<readonly Command[]>
}

const LINE = /^\+[\d.]+ \[\d+ (?<source>\S+)\] (?<command>.*)$/

/**
 * Writes down every round trip to a Redis, told by its `MONITOR`: what clients send, pipelined or not, and
 * none of what scripts call inside the server. Not by ioredis, whose monitor takes a command that comes with
 * the first answer for a protocol error.
 */
export async function logCommands(url: string): Promise<CommandLog> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  const received = text(socket)
  await once(socket, 'connect')
  socket.write('MONITOR\r\n')
  return {
    async end() {
      // Answered, and the connection closed, after all that was told before.
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
