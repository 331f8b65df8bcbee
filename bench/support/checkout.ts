import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'

/**
 * Returns the folder of another checkout of this repository, whose services a benchmark compares with this one's.
 * Its dependencies must be installed: `npm run verify -- types` there does it.
 *
 * @param path the value of `--against`; relative to the folder in which npm was started
 * @throws {Error} if the folder is not a checkout with installed dependencies.
 */
export function otherCheckout(path: string): string {
  const folder = resolve(process.env['INIT_CWD'] ?? '.', path)
  if (!existsSync(join(folder, 'node_modules')) || !existsSync(join(folder, 'services')))
    throw new Error(`${folder} is not a checkout with installed dependencies`)
  return folder
}

/** Names of the two sides of a comparison with another checkout. */
export const THIS_CHECKOUT = 'this checkout'
export const OTHER_CHECKOUT = 'the other checkout'
