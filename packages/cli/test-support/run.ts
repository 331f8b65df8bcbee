import { PassThrough, Writable } from 'node:stream'
import { expect } from 'vitest'
import { runCommandLine } from '../src/command-line.ts'
import type { CommandFailed } from '../src/exit-code.ts'
import { SERVICE_KEY } from './fake-service.ts'

export interface Run {
  readonly code: number
  readonly out: string
  readonly err: string
  /** The lines of standard output, parsed as JSON. */
  readonly json: readonly unknown[]
}

export interface Surroundings {
  readonly url?: string
  readonly env?: Readonly<Record<string, string>>
  /**
   * The user's input, one text for each prompt. If this member is not set, standard input is not a terminal.
   */
  readonly typed?: readonly (string | (() => string))[]
  /** The width of the terminal, if standard output is one. */
  readonly columns?: number
  /** The height of the terminal. */
  readonly rows?: number
  /** Replaces the waits between two requests of `--watch` and before a repeated request. */
  readonly sleep?: (ms: number) => Promise<void>
  /** The content of standard input. If this member is set, standard input is not a terminal. */
  readonly input?: string | Buffer
  /** The monotonic clock, in milliseconds. By default the time does not pass. */
  readonly now?: () => number
  /** The time of day, in milliseconds since the epoch. */
  readonly wallClock?: () => number
  readonly stop?: AbortSignal & { readonly reason?: CommandFailed }
  /** Called with each chunk that is written to standard error. */
  readonly onErr?: (text: string) => void
}

/** Runs the command line in this process. */
export async function run(
  args: readonly string[],
  {
    url,
    env = {},
    typed,
    columns,
    rows,
    sleep,
    input,
    now = () => 0,
    wallClock = Date.now,
    stop,
    onErr,
  }: Surroundings = {},
): Promise<Run> {
  const inputs = [...(typed ?? [])]
  const stdin = Object.assign(new PassThrough(), { isTTY: typed !== undefined })
  if (input !== undefined) stdin.end(input)
  const collect = (onText?: (text: string) => void) => {
    const chunks: string[] = []
    const stream = new Writable({
      write(chunk, _encoding, done) {
        chunks.push(String(chunk))
        onText?.(String(chunk))
        done()
      },
    })
    const tty = {
      isTTY: typed !== undefined,
      ...(columns !== undefined && { columns }),
      ...(rows !== undefined && { rows }),
    }
    return { chunks, stream: Object.assign(stream, tty) }
  }
  const out = collect()
  const err = collect((text) => {
    onErr?.(text)
    if (!/[:\]] $/.test(text)) return
    const response = inputs.shift() ?? '\u0004'
    setImmediate(() => stdin.write(`${typeof response === 'string' ? response : response()}\r`))
  })
  const code = await runCommandLine(args, {
    env: {
      // This folder does not exist, so the command cannot read the key of an embedded host on this machine.
      DATA_DIR: '/nonexistent',
      SERVICE_API_KEY: SERVICE_KEY,
      ...(url !== undefined && { TOKEN_SERVICE_URL: url }),
      ...env,
    },
    stdin,
    stdout: out.stream,
    stderr: err.stream,
    now,
    wallClock,
    ...(sleep !== undefined && { sleep }),
    signal: stop ?? new AbortController().signal,
  })
  const text = out.chunks.join('')
  return {
    code,
    out: text,
    err: err.chunks.join(''),
    get json() {
      return text
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown)
    },
  }
}

/** Checks that a command was rejected as wrong usage with this message, and sent no request. */
export function expectWrongUsage(
  { code, out, err }: Run,
  message: string,
  requests: readonly unknown[],
): void {
  expect([code, out, err]).toEqual([2, '', expect.stringContaining(message)])
  expect(requests).toEqual([])
}
