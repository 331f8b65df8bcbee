/**
 * Resolves the imports of process files, which lie outside this installation.
 *
 * H1  `integration-host` always resolves to the copy of this installation. An import of `zod` in a file of the user
 *     also resolves to the copy of this installation, because the coordinator works with the definitions and schemas
 *     that a process file creates. Node resolves every other import from the `node_modules` of the importing file's own
 *     folder.
 * H2  A file of the user is a file that is not below a `node_modules` folder, or that belongs to a package from which
 *     processes are loaded. The modules of the coordinator are not files of the user.
 * H3  A TypeScript file of the user is always an ES module, whatever a `package.json` above it says.
 * H4  A generation is one load of all process files. A file of the user belongs to the generation of the file that
 *     imports it. Therefore the process files of one load share their helper files, and the next load reads all of them
 *     again. CommonJS modules are read only once, because Node caches them by file name.
 */
import { registerHooks } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'

/**
 * The module to which `integration-host` resolves. It is a TypeScript file in a checkout, and a JavaScript file in a
 * built installation.
 */
const API = new URL(
  import.meta.url.endsWith('.ts') ? '../../step/api.ts' : '../../step/api.js',
  import.meta.url,
)
/** The modules of the coordinator. In a checkout these are not below a `node_modules` folder. */
const COORDINATOR = new URL('../../', import.meta.url).href
const BUILT_IN_PROCESSES = `${COORDINATOR}processes/`
const ZOD = /^zod(?:\/|$)/
const PACKAGE_SCHEME = 'process-package:'
const GENERATION = 'generation'

export interface ModuleHook {
  /**
   * Returns the specifier with which a package is imported in a generation (one load of all process files). Packages
   * are resolved from the working directory.
   */
  packageSpecifier(name: string, generation: number): string
  /** The URLs of the user's files that were imported, and the URLs at which an import has found no file. */
  readonly files: ReadonlySet<string>
}

/** Installs the hook for the lifetime of this OS process, because a step may import a file when it runs. */
export function installModuleHook(packageRoots: readonly URL[]): ModuleHook {
  const files = new Set<string>()
  const workingDirectory = pathToFileURL(`${process.cwd()}/`).href

  const isOfUser = (url: string): boolean => {
    if (!url.startsWith('file:')) return false
    if (url.startsWith(COORDINATOR) && !url.startsWith(BUILT_IN_PROCESSES)) return false
    const root = packageRoots.find(({ href }) => url.startsWith(href))
    const path = root === undefined ? url : url.slice(root.href.length)
    return !path.includes('/node_modules/')
  }

  registerHooks({
    resolve(specifier, context, nextResolve) {
      // `require` resolves paths, and no URLs. It can load ES modules.
      const isRequired = context.conditions.includes('require')
      if (specifier === 'integration-host')
        return nextResolve(isRequired ? fileURLToPath(API) : API.href, context)
      const isEntry = specifier.startsWith(PACKAGE_SCHEME)
      const parentURL = isEntry ? workingDirectory : context.parentURL
      const importsOfUser = !isEntry && parentURL !== undefined && isOfUser(parentURL)
      if (importsOfUser && ZOD.test(specifier))
        return isRequired
          ? nextResolve(fileURLToPath(import.meta.resolve(specifier)), context)
          : nextResolve(specifier, { ...context, parentURL: import.meta.url })
      let resolved
      try {
        const wanted = isEntry
          ? withoutGeneration(specifier.slice(PACKAGE_SCHEME.length))
          : specifier
        resolved = nextResolve(wanted, { ...context, parentURL })
      } catch (error) {
        const { url } = error as { url?: unknown }
        if (importsOfUser && typeof url === 'string') files.add(withoutGeneration(url))
        throw error
      }
      if (!isOfUser(resolved.url)) return resolved
      const url = new URL(resolved.url)
      const ofEntryOrParent = isEntry ? specifier : importsOfUser ? parentURL : null
      const generation =
        ofEntryOrParent === null ? null : new URL(ofEntryOrParent).searchParams.get(GENERATION)
      if (generation !== null) url.searchParams.set(GENERATION, generation)
      files.add(withoutGeneration(url.href))
      return {
        ...resolved,
        url: url.href,
        ...(url.pathname.endsWith('.ts') && { format: 'module-typescript' }),
      }
    },
  })
  return {
    files,
    packageSpecifier: (name, generation) => ofGeneration(`${PACKAGE_SCHEME}${name}`, generation),
  }
}

/**
 * Returns the URL of a module in a generation (one load of all process files). Node loads each URL only once, so each
 * generation needs its own URLs.
 */
export function ofGeneration(url: string, generation: number): string {
  const versioned = new URL(url)
  if (generation > 0) versioned.searchParams.set(GENERATION, String(generation))
  return versioned.href
}

/** Returns the text without the query parameter `generation` in its URLs. */
export const withoutGeneration = (text: string): string => text.replaceAll(/\?generation=\d+/g, '')
