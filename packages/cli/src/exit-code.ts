/** How a command ends. Documented in docs/cli.md, and as stable as the commands themselves. */
export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  faulted: 4,
  unreachable: 5,
} as const

/** Why a command did not do what it was asked. The message is shown as it is, so it holds no secret. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed'
  readonly exitCode: number

  constructor(exitCode: number, message: string) {
    super(message)
    this.exitCode = exitCode
  }
}

/** The command line itself was wrong: nothing was done. */
export class UsageError extends CommandFailed {
  constructor(message: string) {
    super(exitCodes.usage, message)
  }
}
