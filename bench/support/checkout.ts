import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'

/**
 * Returns the folder of another checkout of this repository, so that a benchmark can compare the services of both
 * checkouts. The dependencies of the other checkout must be installed; `npm run verify -- types` in that folder
 * installs them.
 *
 * @param path the value of `--against`; relative to the folder in which npm was started
 * @throws {Error} if the folder is not a checkout with installed dependencies
 */
export function otherCheckout(path: string): string {
  const folder = resolve(process.env['INIT_CWD'] ?? '.', path)
  if (!existsSync(join(folder, 'node_modules')) || !existsSync(join(folder, 'services')))
    throw new Error(`${folder} is not a checkout with installed dependencies`)
  return folder
}

/** Names of the two checkouts in a comparison. */
export const THIS_CHECKOUT = 'this checkout'
export const OTHER_CHECKOUT = 'the other checkout'
