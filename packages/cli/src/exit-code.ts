/** The exit codes of the commands. They are a contract, documented in docs/cli.md. */
export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  faulted: 4,
  unreachable: 5,
  auditGap: 6,
} as const

/** A command failed. The error message is printed unchanged and must not contain a secret. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed'
  readonly exitCode: number

  constructor(exitCode: number, message: string) {
    super(message)
    this.exitCode = exitCode
  }
}

/** The arguments or settings were invalid, and the command did nothing. */
export class UsageError extends CommandFailed {
  constructor(message: string) {
    super(exitCodes.usage, message)
  }
}
