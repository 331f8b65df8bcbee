import { dirname, join, normalize } from 'node:path/posix'

/** A source tree: repository path (`services/coordinator/src/app.ts`) → text. */
export type Sources = ReadonlyMap<string, string>

/** Package name → folder and doors (`exports` of its package.json, with at most one `*`). */
export type Workspace = ReadonlyMap<
  string,
  { readonly folder: string; readonly doors: Readonly<Record<string, string>> }
>

interface Import {
  readonly specifier: string
  /** `import type` and `export type`: gone before anything runs. */
  readonly isTypeOnly: boolean
}

/** Belongs in adapters, routes and `app.ts`; a domain folder works with the values these turn it into. */
export const technology: readonly string[] = [
  'hono',
  '@hono/node-server',
  'hono-openapi',
  'amqplib',
  'ioredis',
  'drizzle-orm',
  'postgres',
  'openid-client',
  'undici',
  'pino',
  '@opentelemetry/api',
  '@opentelemetry/sdk-node',
]

const outerFolders = new Set(['adapters', 'routes', 'fast-path'])

/** The part of the field a file is about (`services/coordinator/src/runner`); undefined outside the domain and for tests. */
export function domainFolderOf(path: string): string | undefined {
  const [services, service, src, folder, ...rest] = path.split('/')
  if (services !== 'services' || src !== 'src' || folder === undefined || rest.length === 0) return
  if (/\.(?:test|contract)\.ts$/.test(path)) return
  return outerFolders.has(folder) ? undefined : `services/${service}/src/${folder}`
}

/** Every breach of the import direction, one sentence each. */
export function importViolations(sources: Sources, workspace: Workspace): string[] {
  return [...sources].flatMap(([path, text]) => {
    const imports = importsOf(text)
    return [
      ...imports.flatMap(({ specifier }) => {
        const target = resolveImport(path, specifier, workspace)
        const breach = target === undefined ? undefined : crossing(path, target)
        return breach === undefined ? [] : [`${path} imports ${specifier}: ${breach}`]
      }),
      ...(domainFolderOf(path) === undefined ? [] : domainViolations(path, sources, workspace)),
    ]
  })
}

/** @returns why a file must not import another, both given as repository paths */
function crossing(from: string, to: string): string | undefined {
  const service = serviceOf(to)
  const own = serviceOf(from)
  if (service !== undefined && service !== own) {
    if (own !== undefined) return 'services talk over HTTP and the broker, never by import'
    if (from.startsWith('packages/')) return 'packages know nothing of what is built on them'
    // An example of a process is a part of the coordinator that lives elsewhere.
    if (!/^(?:host|examples)\//.test(from)) return 'only host/ imports services'
  }
  if (to.startsWith('host/') && (own !== undefined || from.startsWith('packages/'))) {
    return 'host/ stands above the services and packages'
  }
  if (domainFolderOf(from) !== undefined && service === own && domainFolderOf(to) === undefined) {
    return 'imports point inward, and this one leaves the domain'
  }
  return undefined
}

function domainViolations(path: string, sources: Sources, workspace: Workspace): string[] {
  const text = withoutComments(sources.get(path) ?? '')
  const violations = /\bprocess\.env\b|['"]node:process['"]/.test(text)
    ? [`${path} reads process.env: settings come in as parameters`]
    : []
  for (const { specifier } of importsOf(text)) {
    if (isTechnology(specifier)) {
      violations.push(`${path} imports ${specifier}: technology belongs in adapters/`)
    }
  }
  const detour = detourToTechnology(path, sources, workspace)
  if (detour !== undefined) {
    violations.push(`${path} loads technology by way of ${detour.join(' → ')}`)
  }
  return violations
}

/** The shortest way on which loading `start` loads technology through another file. */
function detourToTechnology(
  start: string,
  sources: Sources,
  workspace: Workspace,
): readonly string[] | undefined {
  const seen = new Set([start])
  const queue: { readonly path: string; readonly way: readonly string[] }[] = [
    { path: start, way: [] },
  ]
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    for (const { specifier, isTypeOnly } of importsOf(sources.get(next.path) ?? '')) {
      if (isTypeOnly) continue
      if (isTechnology(specifier)) {
        if (next.path !== start) return [...next.way, specifier]
        continue
      }
      const target = resolveImport(next.path, specifier, workspace)
      if (target === undefined || seen.has(target)) continue
      seen.add(target)
      queue.push({ path: target, way: [...next.way, target] })
    }
  }
  return undefined
}

// Between the first word and `from` stand names only: no quote, no bracket of a call, no other statement.
const staticImport =
  /\b(?:import|export)\s+(type\s)?(?:(?!\b(?:import|export)\b)[^'"`;()])*?\bfrom\s*['"]([^'"]+)['"]/g
const bareImport = /\bimport\s*\(?\s*['"]([^'"]+)['"]/g

function importsOf(text: string): Import[] {
  const code = withoutComments(text)
  return [
    ...[...code.matchAll(staticImport)].map(([, type, specifier = '']) => ({
      specifier,
      isTypeOnly: type !== undefined,
    })),
    ...[...code.matchAll(bareImport)].map(([, specifier = '']) => ({
      specifier,
      isTypeOnly: false,
    })),
  ]
}

function withoutComments(text: string): string {
  return text.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/^\s*\/\/.*$/gm, '')
}

function isTechnology(specifier: string): boolean {
  return technology.some((name) => specifier === name || specifier.startsWith(`${name}/`))
}

function serviceOf(path: string): string | undefined {
  return /^services\/([^/]+)\//.exec(path)?.[1]
}

/** @returns the repository path of a relative import or of a workspace package's door; undefined for anything else */
function resolveImport(from: string, specifier: string, workspace: Workspace): string | undefined {
  if (specifier.startsWith('.')) return normalize(join(dirname(from), specifier))
  for (const [name, { folder, doors }] of workspace) {
    if (specifier !== name && !specifier.startsWith(`${name}/`)) continue
    const wanted = `.${specifier.slice(name.length)}`
    for (const [door, file] of Object.entries(doors)) {
      const [before = '', after] = door.split('*')
      const matches =
        after === undefined
          ? wanted === door
          : wanted.startsWith(before) && wanted.endsWith(after) && wanted.length >= door.length
      if (!matches) continue
      const star =
        after === undefined ? '' : wanted.slice(before.length, wanted.length - after.length)
      return normalize(join(folder, file.replace('*', star)))
    }
    return `${folder}/${wanted}` // no such door: still an import of that package
  }
  return undefined
}
