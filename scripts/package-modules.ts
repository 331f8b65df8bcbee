/** Rewrites the imports of compiled modules for the package that `npm run pack` builds. */
import { dirname, join, relative } from 'node:path/posix'
import type { WorkspaceManifest } from './package-manifest.ts'

/**
 * Returns the path of the source file to which an import of a workspace package, such as
 * `@integration-host/shared/json`, refers.
 */
export type Doors = (specifier: string) => string

/**
 * Returns the function that maps an import of a workspace package to its source file. The function throws if no package
 * exports the imported path.
 */
export function doorsOf(workspace: readonly WorkspaceManifest[]): Doors {
  return (specifier) => {
    const owner = workspace.find(({ name }) => specifier.startsWith(`${name}/`))
    const door = `.${specifier.slice(owner?.name.length)}`
    for (const [pattern, target] of Object.entries(owner?.exports ?? {})) {
      const [before = '', after] = pattern.split('*')
      if (owner !== undefined && pattern === door) return join(owner.folder, target)
      if (owner === undefined || after === undefined) continue
      if (door.startsWith(before) && door.endsWith(after))
        return join(
          owner.folder,
          target.replace('*', door.slice(before.length, door.length - after.length)),
        )
    }
    throw new Error(`no workspace package exports ${specifier}`)
  }
}

/**
 * Matches an import or export of another module. The groups are the text before the specifier, the quote, and the
 * specifier.
 */
const SPECIFIER = /(\bfrom\s*|\bimport\s*(?:\(\s*)?)(["'])([^"'\n]+)["']/g

/** Matches a file URL that is relative to the module, such as the URL of the entry file of a worker thread. */
const FILE_URL = /(\bnew URL\(["'][^"'\n]+)\.ts(["'], import\.meta\.url\))/g

/**
 * Returns the text of a compiled module in which imports of workspace packages are replaced by relative imports, and
 * `.ts` extensions by `.js`. tsc itself replaces the extensions in imports of modules, but not in declarations and file
 * URLs.
 */
export const withRelativeImports = (file: string, text: string, doors: Doors): string =>
  text
    .replaceAll(FILE_URL, '$1.js$2')
    .replaceAll(SPECIFIER, (whole, before: string, quote: string, specifier: string) => {
      if (specifier.startsWith('.'))
        return `${before}${quote}${specifier.replace(/\.ts$/, '.js')}${quote}`
      if (!specifier.startsWith('@integration-host/')) return whole
      const path = relative(dirname(file), doors(specifier)).replace(/\.ts$/, '.js')
      return `${before}${quote}${path.startsWith('.') ? path : `./${path}`}${quote}`
    })

/**
 * Returns the given declaration files, and all declaration files that they import directly or indirectly. The imports
 * must be relative already.
 *
 * @param read returns the text of a declaration file. It throws if there is no such file.
 */
export function neededDeclarations(
  files: readonly string[],
  read: (file: string) => string,
): ReadonlySet<string> {
  const needed = new Set(files)
  for (const file of needed)
    for (const [, , , specifier = ''] of withoutComments(read(file)).matchAll(SPECIFIER))
      if (specifier.startsWith('.'))
        needed.add(join(dirname(file), specifier.replace(/\.js$/, '.d.ts')))
  return needed
}

/** Returns a declaration file without the lines of its comments, which may show an import as an example. */
const withoutComments = (text: string): string =>
  text
    .split('\n')
    .filter((line) => !/^(?:\*|\/\*)/.test(line.trimStart()))
    .join('\n')
