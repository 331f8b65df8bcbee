import { ExportDocument, MAX_TRANSFER } from '@integration-host/shared/contracts/custody'
import { credentialNames, defineCommand, flags, texts } from '../command.ts'
import { CommandFailed, exitCodes, UsageError } from '../exit-code.ts'
import { createExportFile } from '../export-file.ts'
import { createProgress, notify, type Terminal } from '../terminal.ts'
import { LONG_DEADLINE_MS, openTokenService, type ServiceApi } from '../service-api.ts'
import { readTransferSecret, transferOptions, transferOptionsHelp } from '../transfer-secret.ts'
import { credentialPages } from './credentials.ts'

export const exportCredentials = defineCommand({
  summary: 'export credentials to a file for another installation',
  usage: '(ACC-<realm>… | --all) --out FILE',
  help: `Writes encrypted credentials to a file that another installation can import. From then on this installation does
not refresh them and reports the fault "transferred": two installations that refresh one grant would end it.
The credentials can be exported again, and the file can be imported here again.

  --all        every credential
  --out FILE   a new file that only its owner can read; up to ${MAX_TRANSFER} credentials on each line
${transferOptionsHelp}

Examples:
  integration-host credentials export ACC-1 ACC-2 --out two.ndjson
  integration-host credentials export --all --out all.ndjson --key-file transfer.key`,
  options: { ...transferOptions, ...flags('all'), ...texts('out') },
  argumentOf: (words) => [...new Set(credentialNames(words))],
  async run({ values, argument: given, terminal, output }) {
    if (given.length > 0 === (values.all === true))
      throw new UsageError('Either names of credentials or --all is needed')
    if (!values.out) throw new UsageError('--out FILE is needed')
    const service = openTokenService(values.url, terminal)
    const file = await createExportFile(values.out)
    const progress = createProgress(terminal)
    const done: string[] = []
    let documents = 0
    let failure: CommandFailed | null = null
    try {
      const secret = await readTransferSecret(values, terminal, { isNew: true })
      const names = values.all ? await allNames(service, terminal) : given
      for (let start = 0; start < names.length; start += MAX_TRANSFER) {
        const Names = names.slice(start, start + MAX_TRANSFER)
        const body = { Names, ...secret() }
        const document = await service.post('/exports', body, ExportDocument, {
          timeoutMs: LONG_DEADLINE_MS,
        })
        await file.append(document)
        documents += 1
        done.push(...document.Names)
        progress.update(`${done.length} of ${names.length} credentials`)
      }
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error
      failure = error
    } finally {
      progress.end()
      if (documents === 0) await file.discard()
      else await file.finish()
    }
    if (failure !== null && documents === 0) throw failure
    const report = { File: values.out, Names: done, IsComplete: failure === null }
    await output(report, `${values.out} has ${summaryOf(done)}.`)
    if (!values.json)
      notify(
        terminal,
        'This installation no longer refreshes these credentials. Import the file elsewhere, or here to undo the export.',
      )
    if (failure === null) return
    throw new CommandFailed(
      failure.exitCode,
      `${failure.message}\nThe export is not complete: ${values.out} has ${summaryOf(done)}. Other credentials may be marked as transferred. Run the export again with another file: every credential can be exported again.`,
    )
  },
})

/**
 * Returns the names of all credentials with a refresh token. Credentials without a refresh token cannot be exported.
 */
async function allNames(service: ServiceApi, terminal: Terminal): Promise<string[]> {
  const names: string[] = []
  for await (const items of credentialPages(service)) {
    for (const { Name, Fault } of items) {
      if (Fault?.Code === 'no_refresh_token')
        notify(terminal, `${Name} has no refresh token and is not exported.`)
      else names.push(Name)
    }
  }
  if (names.length === 0)
    throw new CommandFailed(exitCodes.failed, 'There are no credentials to export.')
  return names
}

const FEW = 20

/**
 * Returns a text with all names if there are at most 20. Otherwise the text has the number of names, the first name and
 * the last name. `names` must be sorted.
 */
function summaryOf(names: readonly string[]): string {
  if (names.length <= FEW) return names.join(', ')
  return `${names.length} credentials, ${names[0]} to ${names.at(-1)}`
}
