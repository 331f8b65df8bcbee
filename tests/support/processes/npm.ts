/** Runs npm and the programs of packages that npm has installed. */
import { delimiter, dirname } from 'node:path'
import {
  type ProcessOptions,
  runProcess,
} from '@integration-host/shared/test-support/start-process'

/** npm and the programs of packages must run with the Node of the tests, and must find the user's settings of npm. */
export const npmEnv = {
  ...Object.fromEntries(
    Object.entries(process.env).filter(([name]) =>
      /^(?:HOME|https?_proxy|no_proxy|npm_config_.*)$/i.test(name),
    ),
  ),
  PATH: [dirname(process.execPath), process.env['PATH']].join(delimiter),
}

export const runWithNpm = (program: string, args: readonly string[], options: ProcessOptions) =>
  runProcess(args, { program, ...options, env: { ...npmEnv, ...options.env } })

/** The options of `npm install`. npm takes a package from its cache if the cache has it. */
export const INSTALL_OPTIONS = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error']

/** What npm prints if it cannot reach the registry. */
const UNREACHABLE =
  /\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT|ERR_SOCKET_TIMEOUT|E50[234])\b/

/**
 * Returns why npm cannot install packages; `null` if it can. It is called before an installation, because npm would
 * retry the download of each dependency for minutes if no registry can be reached.
 */
export async function whyUnreachable(folder: string): Promise<string | null> {
  const asked = await runWithNpm('npm', ['view', 'zod', 'name', '--fetch-retries=0'], {
    cwd: folder,
  })
  const reason = asked.code === 0 ? undefined : UNREACHABLE.exec(asked.stderr)?.[0]
  return reason === undefined ? null : `npm cannot reach the package registry (${reason})`
}
