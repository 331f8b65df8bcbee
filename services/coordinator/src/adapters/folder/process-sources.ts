import { z } from 'zod'

/** A source of processes: the files of a folder, or the exports of a package. */
export type ProcessSource =
  | { readonly kind: 'folder'; readonly path: string }
  | { readonly kind: 'package'; readonly name: string }

/**
 * Matches a path, which begins with `/`, `./`, `../` or a drive letter as in import specifiers. Any other text is a
 * package name.
 */
const FOLDER = /^(?:\.{0,2}[/\\]|\.{1,2}$|[A-Za-z]:[/\\])/
const PACKAGE = /^(?:@[a-z0-9~-][a-z0-9._~-]*\/)?[a-z0-9~-][a-z0-9._~-]*$/

function parseSource(text: string): ProcessSource | null {
  if (FOLDER.test(text)) return { kind: 'folder', path: text }
  return PACKAGE.test(text) ? { kind: 'package', name: text } : null
}

/** The setting `PROCESSES`: folders and package names, separated by commas. */
export const processSources = () =>
  z.string().transform((list, context): readonly ProcessSource[] => {
    const sources = list.split(',').map((entry) => parseSource(entry.trim()))
    if (!sources.includes(null)) return sources.filter((source) => source !== null)
    context.addIssue({
      code: 'custom',
      message: 'must be a comma list of folders, such as ./processes, and package names',
    })
    return z.NEVER
  })
