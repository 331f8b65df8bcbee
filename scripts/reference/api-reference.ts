// `npm run docs`: writes docs/reference/, the reference of the package's entry points, from their declarations and
// docstrings.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import manifest from '../../package.json' with { type: 'json' }

const root = join(import.meta.dirname, '../..')
/**
 * TypeDoc needs the compiler API of TypeScript 6, because TypeScript 7 has no stable one. Type errors are not reported
 * here, because `npm run verify` checks the types with TypeScript 7.
 */
const typedoc = join(import.meta.dirname, 'node_modules/typedoc/bin/typedoc')

/**
 * Writes one page for each entry point of the package into the folder `out`, and removes all other files from it.
 *
 * @throws {Error} TypeDoc has reported an error or a warning, such as a link to a name that does not exist.
 */
export function writeApiReference(out: string): void {
  const doors = Object.values(manifest.exports).map((file) => join(root, file))
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [typedoc, '--options', join(import.meta.dirname, 'typedoc.json'), '--out', out, ...doors],
    { cwd: root, encoding: 'utf8' },
  )
  if (status !== 0) throw new Error(`the reference cannot be written:\n${stdout}${stderr}`)
}

if (import.meta.main) writeApiReference(join(root, 'docs/reference'))
