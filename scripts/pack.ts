/**
 * `npm run pack`: builds `dist/integration-host-<version>.tgz`, the package that other repositories install (ADR 30).
 *
 * tsc compiles the sources into the same folders, because Node strips no types below `node_modules`. The workspace
 * packages become folders of one package, so imports of these packages are rewritten to relative paths. The
 * dependencies and the entry points of the package come from the manifests of the workspace.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, globSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, join, normalize, relative } from 'node:path'
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
  'services/console/app',
  'services/console/src/isomorphic',
  'deploy',
  'docker-compose.yml',
  'host/template',
  'docs',
  'README.md',
  'CHANGELOG.md',
  'LICENSE',
  'SECURITY.md',
]

const tsc = join(root, 'node_modules/.bin/tsc')
const workspace = readWorkspaceManifests(root)
const settings = read('pnpm-workspace.yaml')
const manifest = packageManifest(workspace, settings)

rmSync(dist, { recursive: true, force: true })
run(tsc, ['--project', 'tsconfig.package.json'], root)
const entryPoints = Object.values(workspace[0]?.exports ?? {})
const declarationFaults = emitDeclarations(entryPoints.map((source) => join(root, source)))

const doors = doorsOf(workspace)
for (const name of globSync('**/*.{js,d.ts}', { cwd: folder })) {
  const file = join(folder, name)
  writeFileSync(file, withRelativeImports(name, readFileSync(file, 'utf8'), doors))
}
requireDeclarations(entryPoints, declarationFaults)
for (const file of copied) cpSync(join(root, file), join(folder, file), { recursive: true })
mkdirSync(join(folder, 'scripts'))
for (const [from, to] of [
  ['node-version.mjs', 'node-version.mjs'],
  ['npm-parent.mjs', 'npm-parent.mjs'],
  ['package-entry.mjs', 'integration-host.mjs'],
] as const)
  cpSync(join(root, 'scripts', from), join(folder, 'scripts', to))
// npm ignores the patches and overrides of pnpm, so the tarball contains the packages that pnpm has changed.
for (const name of manifest.bundleDependencies) {
  const user = workspace.find(({ dependencies }) => name in dependencies)
  cpSync(join(root, user?.folder ?? '', 'node_modules', name), join(folder, 'node_modules', name), {
    recursive: true,
    dereference: true,
    filter: (source) => !/[/\\]node_modules[/\\]\.bin/.test(source) && isServed(name, source),
  })
  if (!hasNoDependencies(name, settings)) continue
  const file = join(folder, 'node_modules', name, 'package.json')
  const { dependencies: _, ...rest } = JSON.parse(readFileSync(file, 'utf8')) as Record<
    string,
    unknown
  >
  writeFileSync(file, JSON.stringify(rest, null, 2))
}
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)

run('npm', ['pack', '--silent', '--pack-destination', dist], folder)
console.log(join(relative(process.cwd(), dist), `${manifest.name}-${manifest.version}.tgz`))

/**
 * Returns whether the package needs the file of a dependency. Of `@scalar/api-reference`, only the bundle is needed: 4
 * of 50 MB.
 */
function isServed(name: string, source: string): boolean {
  if (name !== '@scalar/api-reference' || statSync(source).isDirectory()) return true
  return ['package.json', 'standalone.js'].includes(basename(source))
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
        compilerOptions: { declaration: true, emitDeclarationOnly: true },
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
