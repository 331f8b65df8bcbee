/** Merges the manifests of the workspace into the manifest of the package that `npm run pack` builds. */
import { globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

type Versions = Readonly<Record<string, string>>

/** The members of a package.json from which the manifest of the package is created. */
export interface WorkspaceManifest {
  /** The folder of the package.json, relative to the root of the checkout. */
  readonly folder: string
  readonly name: string
  readonly version: string
  readonly license: string
  readonly description: string
  readonly bin: Versions
  readonly engines: Versions
  readonly exports: Versions
  readonly dependencies: Versions
  readonly devDependencies: Versions
}

export interface PackageManifest {
  readonly name: string
  readonly version: string
  readonly license: string
  readonly description: string
  readonly type: 'module'
  readonly bin: Versions
  readonly exports: Readonly<Record<string, string | { types: string; default: string }>>
  readonly engines: Versions
  readonly dependencies: Versions
  readonly bundleDependencies: readonly string[]
  readonly peerDependencies: Versions
  readonly peerDependenciesMeta: Readonly<Record<string, { optional: true }>>
  readonly devDependencies: Versions
  /** npm records from which commit and by which workflow the package was built, if the workflow may sign. */
  readonly publishConfig: { readonly access: 'public'; readonly provenance: boolean }
}

/** This package is optional because it takes 42 MB and only tracing needs it (docs/tracing.md). */
const OPTIONAL = '@opentelemetry/sdk-node'

/** This package is bundled because npm would install it with 2 MB of samples for the tests of a package that it needs. */
const WITH_SAMPLES = '@prometheus-io/client'

/**
 * The packages with which a project checks the types of its process files. `integration-host init` copies their
 * versions.
 */
const FOR_TYPES = ['@types/node', 'typescript']

/**
 * Returns the manifest of the root, followed by the manifests of the workspace packages whose code is in the package.
 */
export function readWorkspaceManifests(root: string): WorkspaceManifest[] {
  return ['package.json', ...globSync('{services/*,packages/*,host}/package.json', { cwd: root })]
    .map((file) => ({
      folder: dirname(file),
      ...(JSON.parse(readFileSync(join(root, file), 'utf8')) as Partial<WorkspaceManifest>),
    }))
    .map((manifest) => ({
      name: '',
      version: '',
      license: '',
      description: '',
      bin: {},
      engines: {},
      exports: {},
      dependencies: {},
      devDependencies: {},
      ...manifest,
    }))
}

/**
 * Returns the manifest of the package. Name, version, licence, entry points and Node version come from the root, and
 * dependencies from all workspace packages.
 *
 * @param workspaceYaml the text of pnpm-workspace.yaml. Packages in `patchedDependencies`, and packages whose
 * dependencies `overrides` removes, are bundled, because npm ignores both
 * @throws {Error} if two workspace packages use different versions of a dependency.
 */
export function packageManifest(
  workspace: readonly WorkspaceManifest[],
  workspaceYaml: string,
): PackageManifest {
  const [root] = workspace
  if (root === undefined) throw new Error('there is no manifest')
  const versions = new Map<string, string>()
  for (const { name: user, dependencies } of workspace)
    for (const [name, version] of Object.entries(dependencies)) {
      if (version.startsWith('workspace:')) continue
      const other = versions.get(name)
      if (other !== undefined && other !== version)
        throw new Error(`${user} uses ${name} ${version}, another package ${other}`)
      versions.set(name, version)
    }
  const all = [...versions].toSorted(([a], [b]) => (a < b ? -1 : 1))
  const optional = all.filter(([name]) => name === OPTIONAL)
  return {
    name: root.name,
    version: root.version,
    license: root.license,
    description: root.description,
    type: 'module',
    bin: root.bin,
    exports: {
      ...Object.fromEntries(
        Object.entries(root.exports).map(([door, source]) => [
          door,
          { types: source.replace(/\.ts$/, '.d.ts'), default: source.replace(/\.ts$/, '.js') },
        ]),
      ),
      './package.json': './package.json',
    },
    engines: root.engines,
    dependencies: Object.fromEntries(all.filter(([name]) => name !== OPTIONAL)),
    bundleDependencies: all
      .map(([name]) => name)
      .filter(
        (name) =>
          name === WITH_SAMPLES ||
          isPatched(name, workspaceYaml) ||
          hasNoDependencies(name, workspaceYaml),
      ),
    peerDependencies: Object.fromEntries(optional),
    peerDependenciesMeta: Object.fromEntries(
      optional.map(([name]) => [name, { optional: true } as const]),
    ),
    devDependencies: Object.fromEntries(
      FOR_TYPES.map((name) => [name, root.devDependencies[name] ?? '']),
    ),
    publishConfig: { access: 'public', provenance: true },
  }
}

/** Returns whether `patchedDependencies` of pnpm-workspace.yaml contains a line `  <name>@<version>: <file>`. */
function isPatched(name: string, workspaceYaml: string): boolean {
  const list = /^patchedDependencies:\n((?: +\S.*\n)+)/m.exec(workspaceYaml)?.[1] ?? ''
  return list.split('\n').some((line) => line.replace(/^ +['"]?/, '').startsWith(`${name}@`))
}

/**
 * Returns whether a line `'<name>>…': '-'` in `overrides` of pnpm-workspace.yaml removes a dependency of the package.
 */
export const hasNoDependencies = (name: string, workspaceYaml: string): boolean =>
  workspaceYaml.split('\n').some((line) => line.startsWith(`  '${name}>`) && line.endsWith(`: '-'`))
