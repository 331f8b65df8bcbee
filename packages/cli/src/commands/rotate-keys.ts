import { KeyRotationProgress } from '@integration-host/shared/contracts/custody'
import { defineCommand } from '../command.ts'
import { CommandFailed, exitCodes } from '../exit-code.ts'
import { counted, createProgress, plain, notify } from '../terminal.ts'
import { openTokenService } from '../service-api.ts'

export const rotateKeys = defineCommand({
  summary: 're-encrypt all credentials with the first of CREDENTIAL_KEYS',
  usage: '',
  help: `Re-encrypts every credential with the first of token-service's CREDENTIAL_KEYS while callers are served, and prints
which keys may be removed from the list. Every replica must have the new key first. An interrupted rotation can be
run again and continues with the remaining credentials.

Examples:
  integration-host credentials rotate-keys
  integration-host credentials rotate-keys --json | jq -r '.RetiredKeys[]'`,
  async run({ values, terminal, output }) {
    const progress = createProgress(terminal)
    let last: KeyRotationProgress | null = null
    try {
      const service = openTokenService(values.url, terminal)
      const lines = service.lines('/key-rotations', KeyRotationProgress, { method: 'POST' })
      for await (last of lines) progress.update(`${doneOf(last)} of ${last.Total} credentials`)
    } finally {
      progress.end()
    }
    if (last?.IsFinished !== true) {
      throw new CommandFailed(
        exitCodes.failed,
        `The rotation was interrupted after ${counted(last === null ? 0 : doneOf(last), 'credential')}. Run it again: it continues with the remaining credentials.`,
      )
    }
    await output(last, ...report(last))
    if (last.Refused === 0) return exitCodes.ok
    notify(
      terminal,
      `${last.Refused} cannot be decrypted with any of CREDENTIAL_KEYS and were not changed: ${last.FirstRefused.join(', ')}${last.Refused > last.FirstRefused.length ? ' …' : ''}`,
      'Keep all keys until these credentials are removed or their companies are connected again.',
    )
    return exitCodes.failed
  },
})

const doneOf = ({ Resealed, Current, Refused }: KeyRotationProgress): number =>
  Resealed + Current + Refused

const report = ({
  ActiveKey,
  Resealed,
  Current,
  Refused,
  RetiredKeys,
}: KeyRotationProgress): string[] => [
  `Encrypted with key ${plain(ActiveKey)}: ${Resealed} now, ${Current} before.`,
  ...(RetiredKeys.length > 0
    ? [`These keys may be removed from CREDENTIAL_KEYS: ${RetiredKeys.map(plain).join(', ')}`]
    : Refused === 0
      ? ['There is no other key that could be removed from CREDENTIAL_KEYS.']
      : []),
]
