import { open } from 'node:fs/promises'
import { parseJsonAs } from '@integration-host/shared/json'
import { ExportDocument, ImportReport } from '@integration-host/shared/contracts/custody'
import { reasonOf } from '@integration-host/shared/observability/health'
import { defineCommand, flags, onlyWord } from '../command.ts'
import { CommandFailed, exitCodes } from '../exit-code.ts'
import { counted, createProgress, plain, print, notify } from '../terminal.ts'
import { LONG_DEADLINE_MS, openTokenService, RequestRejected } from '../service-api.ts'
import { readTransferSecret, transferOptions, transferOptionsHelp } from '../transfer-secret.ts'

export const importCredentials = defineCommand({
  summary: 'import exported credentials',
  usage: 'FILE [--overwrite]',
  help: `Imports the credentials of a file that "credentials export" wrote. A credential that this installation already
holds in usable form, or in a newer version, is rejected. Exit code 1 if any was rejected.
With --json each line is the report on a line of the file.

  --overwrite   import all of them
${transferOptionsHelp}

Examples:
  integration-host credentials import all.ndjson --key-file transfer.key`,
  options: { ...transferOptions, ...flags('overwrite') },
  argumentOf: (words) => onlyWord(words, 'The file to import is needed'),
  async run({ values, argument: path, terminal }) {
    const service = openTokenService(values.url, terminal)
    await using file = await open(path).catch((error: unknown) => {
      throw new CommandFailed(exitCodes.failed, `${path} cannot be read (${reasonOf(error)}).`)
    })
    const secret = await readTransferSecret(values, terminal, { isNew: false })
    const progress = createProgress(terminal)
    let line = 0
    let imported = 0
    let refused = 0
    /** Reports a rejected line; the import continues with the next one. */
    const reject = async (Error: string): Promise<void> => {
      refused += 1
      progress.end()
      if (values.json) await print(terminal, JSON.stringify({ Line: line, Error }))
      else notify(terminal, `line ${line}: ${Error}`)
    }
    try {
      for await (const text of file.readLines()) {
        line += 1
        if (text.trim() === '') continue
        const document = parseJsonAs(ExportDocument, text)
        if (document === null) {
          await reject('is not a document of exported credentials')
          continue
        }
        const body = { Document: document, Overwrite: values.overwrite ?? false, ...secret() }
        const report = await service
          .post('/imports', body, ImportReport, { timeoutMs: LONG_DEADLINE_MS })
          .catch((error: unknown) => {
            // The problem `invalid_request` concerns this document only, so the import continues. Any other
            // failure would affect the next document too.
            if (error instanceof RequestRejected && error.code === 'invalid_request')
              return error.message
            throw error
          })
        if (typeof report === 'string') {
          await reject(report)
          continue
        }
        imported += report.imported.length
        refused += report.refused.length
        if (values.json) await print(terminal, JSON.stringify({ Line: line, ...report }))
        else
          for (const { Name, Reason } of report.refused)
            notify(terminal, `${Name} was rejected: ${plain(Reason)}`)
        progress.update(`${imported} credentials imported`)
      }
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error
      throw new CommandFailed(
        error.exitCode,
        `${error.message}\nStopped at line ${line} of ${path}, with ${counted(imported, 'credential')} imported. Run the command again: the credentials that were imported are then rejected, because this installation can use them.`,
      )
    } finally {
      progress.end()
    }
    if (line === 0) throw new CommandFailed(exitCodes.failed, `${path} is empty.`)
    if (!values.json) await print(terminal, `${imported} imported, ${refused} rejected`)
    return refused === 0 ? exitCodes.ok : exitCodes.failed
  },
})
