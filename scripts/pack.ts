/**
 * `npm run pack`: builds `dist/integration-host-<version>.tgz`, the package that other repositories install (ADR 30).
 *
 * tsc compiles the sources into the same folders, because Node strips no types below `node_modules`. The workspace
 * packages become folders of one package, so imports of these packages are rewritten to relative paths. The
 * dependencies and the entry points of the package come from the manifests of the workspace.
 *
 * The program of the console's pages is bundled here, so that users install neither esbuild nor the packages that only
 * a browser needs: these are the `optionalDependencies` of the console, as they are for the image.
 */
import { spawnSync } from 'node:child_process'
import {
  cpSync,
  globSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { findPackageJSON } from 'node:module'
import { dirname, join, normalize, relative } from 'node:path'
import { gzipSync } from 'node:zlib'
import { hasNoDependencies, packageManifest, readWorkspaceManifests } from './package-manifest.ts'
import { doorsOf, neededDeclarations, withRelativeImports } from './package-modules.ts'

const root = join(import.meta.dirname, '..')
const dist = join(root, 'dist')
const folder = join(dist, 'package')
const read = (file: string): string => readFileSync(join(root, file), 'utf8')

/**
 * The files that the package contains in addition to the compiled modules: files that the code reads, files that users
 * copy, and documents.
 */
const copied = [
  'services/coordinator/migrations',
  'deploy',
  'docker-compose.yml',
  'host/template',
  'docs',
  'README.md',
  'CHANGELOG.md',
  'LICENSE',
  'SECURITY.md',
]

/** Modules that the package imports as types only, so that nothing loads their JavaScript, which needs drizzle-orm. */
const ONLY_TYPES = ['services/coordinator/src/adapters/postgres/schema']

const tsc = join(root, 'node_modules/.bin/tsc')
const workspace = readWorkspaceManifests(root)
const settings = read('pnpm-workspace.yaml')
const manifest = packageManifest(workspace, settings)

rmSync(dist, { recursive: true, force: true })
run(tsc, ['--project', 'tsconfig.package.json'], root)
for (const sources of ONLY_TYPES) rmSync(join(folder, sources), { recursive: true })
run(
  process.execPath,
  ['services/console/src/write-app.ts', join(folder, 'services/console/dist')],
  root,
)
const entryPoints = Object.values(workspace[0]?.exports ?? {})
const declarationFaults = emitDeclarations(entryPoints.map((source) => join(root, source)))

const doors = doorsOf(workspace)
for (const name of globSync('**/*.{js,d.ts}', { cwd: folder })) {
  const file = join(folder, name)
  writeFileSync(file, withRelativeImports(name, readFileSync(file, 'utf8'), doors))
}
requireDeclarations(entryPoints, declarationFaults)
for (const file of copied) cpSync(join(root, file), join(folder, file), { recursive: true })
for (const name of globSync('services/coordinator/migrations/meta/*.json', { cwd: folder })) {
  const file = join(folder, name)
  writeFileSync(file, JSON.stringify(JSON.parse(readFileSync(file, 'utf8'))))
}
mkdirSync(join(folder, 'scripts'))
for (const [from, to] of [
  ['node-version.mjs', 'node-version.mjs'],
  ['npm-parent.mjs', 'npm-parent.mjs'],
  ['package-entry.mjs', 'integration-host.mjs'],
] as const)
  cpSync(join(root, 'scripts', from), join(folder, 'scripts', to))
for (const name of manifest.bundleDependencies) {
  const user = workspace.find(({ dependencies }) => name in dependencies)
  bundle(name, join(root, user?.folder ?? '', 'package.json'))
}
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)

run('npm', ['pack', '--silent', '--pack-destination', dist], folder)
console.log(join(relative(process.cwd(), dist), `${manifest.name}-${manifest.version}.tgz`))

/**
 * Copies a dependency of a module into the package, and those of its own dependencies that npm will not install as
 * dependencies of the package.
 */
function bundle(name: string, module: string): void {
  const source = dirname(realpathSync(findPackageJSON(name, module) ?? ''))
  const target = join(folder, 'node_modules', name)
  cpSync(source, target, {
    recursive: true,
    filter: (file) => isNeeded(name, relative(source, file)),
  })
  if (name === '@scalar/api-reference') compressScript(target)
  const file = join(target, 'package.json')
  const { dependencies = {}, ...rest } = JSON.parse(readFileSync(file, 'utf8')) as {
    readonly dependencies?: Readonly<Record<string, string>>
  }
  if (hasNoDependencies(name, settings)) {
    writeFileSync(file, JSON.stringify(rest, null, 2))
    return
  }
  for (const dependency of Object.keys(dependencies))
    if (!(dependency in manifest.dependencies)) bundle(dependency, join(source, 'package.json'))
}

/**
 * Returns whether the package needs the file of a dependency. Of `@scalar/api-reference`, only the bundle is needed: 4
 * of 50 MB. Most of `bintrees` are samples for its tests, and `postgres` exists in forms for other runtimes.
 */
function isNeeded(name: string, file: string): boolean {
  if (name !== '@scalar/api-reference') return !/^(?:node_modules|test|cf|cjs)\b/.test(file)
  return /^(?:dist(?:\/browser)?|)$|^package\.json$|\/standalone\.js$/.test(file)
}

/** Replaces the bundle by its compressed form, in which the services send it: 1.3 of 4 MB. */
function compressScript(reference: string): void {
  const script = join(reference, 'dist/browser/standalone.js')
  writeFileSync(`${script}.gz`, gzipSync(readFileSync(script), { level: 9 }))
  rmSync(script)
}

/**
 * Emits the declarations of the package's entry points and of all modules that the entry points import. tsc emits the
 * declaration of a workspace package's module only if the configuration lists the module. Therefore a first run of tsc
 * determines the modules to list. Returns the errors that tsc reports, for example for a module without a portable
 * declaration.
 */
function emitDeclarations(sources: readonly string[]): string {
  const config = join(dist, 'tsconfig.types.json')
  const write = (files: readonly string[]): void =>
    writeFileSync(
      config,
      JSON.stringify({
        extends: '../tsconfig.package.json',
        compilerOptions: { declaration: true, emitDeclarationOnly: true, removeComments: false },
        files,
        include: [],
      }),
    )
  write(sources)
  const listed = run(tsc, ['--project', config, '--listFilesOnly'], root).split('\n')
  write(listed.filter((file) => file.startsWith(root) && !file.includes('/node_modules/')))
  const { stdout } = spawnSync(tsc, ['--project', config], { cwd: root, encoding: 'utf8' })
  rmSync(config)
  return stdout
}

/**
 * Deletes the declarations that the types of the entry points do not need. If tsc has reported a fault in a needed
 * declaration, prints the fault and ends this program.
 */
function requireDeclarations(sources: readonly string[], faults: string): void {
  const needed = neededDeclarations(
    sources.map((source) => normalize(source).replace(/\.ts$/, '.d.ts')),
    (file) => readFileSync(join(folder, file), 'utf8'),
  )
  for (const file of globSync('{services,packages,host}/**/*.d.ts', { cwd: folder }))
    if (!needed.has(file)) rmSync(join(folder, file))
  const ofNeeded = faults
    .split('\n')
    .filter((line) => needed.has(line.replace(/^([^(]*)\.ts\(\d+,\d+\): error .*$/, '$1.d.ts')))
  if (ofNeeded.length === 0) return
  console.error(ofNeeded.join('\n'))
  process.exit(1)
}

/** Runs a program and returns its standard output. If the program fails, prints the output and ends this program. */
function run(program: string, args: readonly string[], cwd: string): string {
  const { status, stdout, error } = spawnSync(program, args, {
    cwd,
    stdio: ['ignore', 'pipe', 2],
    encoding: 'utf8',
  })
  if (status === 0) return stdout
  console.error(stdout)
  console.error(`${program} ${args.join(' ')} failed: ${error?.message ?? `exit code ${status}`}`)
  process.exit(1)
}
