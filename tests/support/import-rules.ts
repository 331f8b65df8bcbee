import { dirname, join, normalize } from 'node:path/posix'

/** Maps the repository path of each source file (`services/coordinator/src/app.ts`) to its text. */
export type Sources = ReadonlyMap<string, string>

/**
 * Maps the name of each package to its folder and to the `exports` of its package.json. A path in `exports` may contain
 * one `*`.
 */
export type Workspace = ReadonlyMap<
  string,
  { readonly folder: string; readonly doors: Readonly<Record<string, string>> }
>

interface Import {
  readonly specifier: string
  /** Whether the import is an `import type` or `export type`, which is erased before the program runs. */
  readonly isTypeOnly: boolean
}

/** Packages that only adapters, routes and `app.ts` may import. These files pass plain values to the domain folders. */
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

/**
 * Node modules with effects outside of the code: files, sockets, threads and other processes. A domain folder may
 * import timers and modules that only compute (`node:crypto`, `node:path`, `node:util`).
 */
export const platform: readonly string[] = [
  'node:child_process',
  'node:cluster',
  'node:dgram',
  'node:dns',
  'node:fs',
  'node:http',
  'node:http2',
  'node:https',
  'node:net',
  'node:sqlite',
  'node:tls',
  'node:worker_threads',
]

/**
 * For each listed file of a domain folder, the modules of `platform` that the file still imports. Remove an entry when
 * its file no longer imports the module. Do not add entries.
 */
const platformExceptions: ReadonlyMap<string, readonly string[]> = new Map([
  // The domain folders of accounting-gateway use the types of Node's request and response objects.
  ['services/accounting-gateway/src/proxy/call-types.ts', ['node:http']],
  ['services/accounting-gateway/src/proxy/request-body.ts', ['node:http']],
])

const outerFolders = new Set(['adapters', 'routes'])
/** The routes of a capability stand in its folder. */
const ROUTES = /(?:^|-)routes\.ts$/

/**
 * Returns the domain folder that contains a file (such as `services/coordinator/src/worker`); undefined for tests,
 * for routes, and for files outside the domain folders.
 */
export function domainFolderOf(path: string): string | undefined {
  const [services, service, src, folder, ...rest] = path.split('/')
  if (services !== 'services' || src !== 'src' || folder === undefined || rest.length === 0) return
  if (/\.(?:test|contract)\.ts$/.test(path) || ROUTES.test(rest.at(-1) ?? '')) return
  return outerFolders.has(folder) ? undefined : `services/${service}/src/${folder}`
}

/** Returns one sentence for every violation of the import direction. */
export function importViolations(sources: Sources, workspace: Workspace): string[] {
  return [...sources].flatMap(([path, text]) => {
    const imports = importsOf(text)
    return [
      ...imports.flatMap(({ specifier, isTypeOnly }) => {
        if (browserAppOf(path) !== undefined) {
          if (specifier.startsWith('node:'))
            return [`${path} imports ${specifier}: browsers have no modules of Node`]
          if (specifier.includes('/contracts/') && !isTypeOnly)
            return [`${path} imports ${specifier}: only its types, so that zod is not bundled`]
        }
        const target = resolveImport(path, specifier, workspace)
        const breach = target === undefined ? undefined : crossing(path, target)
        return breach === undefined ? [] : [`${path} imports ${specifier}: ${breach}`]
      }),
      ...(domainFolderOf(path) === undefined ? [] : domainViolations(path, sources, workspace)),
    ]
  })
}

/**
 * Returns the reason why one file must not import another; undefined if the import is allowed. Both files are given
 * as repository paths.
 */
function crossing(from: string, to: string): string | undefined {
  const service = serviceOf(to)
  const own = serviceOf(from)
  if (service !== undefined && service !== own) {
    if (own !== undefined) return 'services talk over HTTP and the broker, never by import'
    if (from.startsWith('packages/')) return 'packages know nothing of what is built on them'
    // Three exceptions: a business process in examples/ imports the coordinator that loads it; the restore drill of
    // scripts/backup.ts reads credential records with the code of token-service; and bench/order-process/ measures parts
    // of the coordinator without the rest.
    if (!/^(?:host\/|examples\/|scripts\/backup\.ts$|bench\/order-process\/)/.test(from))
      return 'only host/ imports services'
  }
  const app = browserAppOf(from)
  if (
    app !== undefined &&
    ![`${app}/app/`, `${app}/src/contracts/`, `${app}/src/isomorphic/`].some((folder) =>
      to.startsWith(folder),
    ) &&
    !/^docs\/[\w-]+\.md$/.test(to)
  )
    return 'the program of a browser imports only its own files, documents, isomorphic/, and types of contracts/'
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
    const module = platform.find((name) => isModule(specifier, name))
    if (module !== undefined && platformExceptions.get(path)?.includes(module) !== true) {
      violations.push(
        `${path} imports ${specifier}: files, sockets and threads belong in adapters/`,
      )
    }
  }
  const detour = detourToTechnology(path, sources, workspace)
  if (detour !== undefined) {
    violations.push(`${path} loads technology by way of ${detour.join(' → ')}`)
  }
  return violations
}

/** Returns the shortest chain of imports through which the file `start` loads a technology package. */
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

// The text between the keyword and `from` may contain only names: no quote, parenthesis or other statement.
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
  return technology.some((name) => isModule(specifier, name))
}

function isModule(specifier: string, name: string): boolean {
  return specifier === name || specifier.startsWith(`${name}/`)
}

/**
 * Returns the folder of the service whose browser program contains a file; undefined for all other files. The files of
 * `src/isomorphic/` are part of the browser program and of the server.
 */
function browserAppOf(path: string): string | undefined {
  return /^(services\/[^/]+)\/(?:app|src\/isomorphic)\//.exec(path)?.[1]
}

function serviceOf(path: string): string | undefined {
  return /^services\/([^/]+)\//.exec(path)?.[1]
}

/**
 * Returns the repository path to which a relative import or an import of a workspace package refers; undefined for
 * any other import.
 */
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
    return `${folder}/${wanted}` // not exported, but still an import of that package
  }
  return undefined
}
