import { existsSync, globSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { errorCodes } from '@integration-host/shared/errors'
import { runProcess } from '@integration-host/shared/test-support/start-process'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'

const read = (path: string): Promise<string> =>
  readFile(new URL(`../${path}`, import.meta.url), 'utf8')

const checkout = join(import.meta.dirname, '..')
const documents = globSync(['*.md', 'docs/*.md', 'docs/adr/*.md', 'packages/*/README.md'], {
  cwd: checkout,
}).toSorted()

const withoutCode = (text: string): string => text.replaceAll(/^ *```.*?^ *```/gms, '')

describe('the Markdown documents of the repository', () => {
  it('every path of the repository that a document names exists', async () => {
    const missing: string[] = []
    const folders = '\\.ci|bench|deploy|docs|examples|host|packages|patches|scripts|services|tests'
    for (const document of documents)
      for (const [path] of (await read(document)).matchAll(
        RegExp(`(?<![\\w./@-])(?:${folders})/[\\w@./-]*\\w`, 'g'),
      ))
        if (!existsSync(join(checkout, path))) missing.push(`${document}: ${path}`)
    expect(missing).toEqual([])
  })

  it('every test file that a document names exists', async () => {
    const tests = globSync(
      '{bench,examples,host,packages,scripts,services,tests}/**/*.{test,contract}.ts',
      {
        cwd: checkout,
        exclude: ['**/node_modules/**'],
      },
    )
    const names = new Set(tests.map((path) => basename(path)))
    const missing: string[] = []
    for (const document of documents)
      for (const [path] of (await read(document)).matchAll(
        /(?<![*\w.])[\w./-]*\w\.(?:test|contract)\.ts\b/g,
      ))
        if (!names.has(basename(path))) missing.push(`${document}: ${path}`)
    expect(missing).toEqual([])
  })

  it('every npm script, benchmark and service of compose that a document names exists', async () => {
    const { scripts } = JSON.parse(await read('package.json')) as { scripts: object }
    const compose = parse(await read('docker-compose.yml')) as { services: object }
    const known = {
      // `npm run check` is a script of the project that `integration-host init` makes.
      'npm run': [...Object.keys(scripts), 'check'],
      'npm run bench --': globSync('*.ts', { cwd: join(checkout, 'bench') }).map((name) =>
        basename(name, '.ts'),
      ),
      'docker compose run': Object.keys(compose.services),
    }
    const unknown: string[] = []
    for (const document of documents)
      for (const [command, names] of Object.entries(known))
        for (const [text, name = ''] of (await read(document)).matchAll(
          RegExp(`${command}(?: --entrypoint \\w+| -[\\w-]+)* (?!-)([\\w:-]+)`, 'g'),
        ))
          if (!names.includes(name)) unknown.push(`${document}: ${text}`)
    const started =
      /docker compose(?: --profile \w+)? (?:up|exec|restart|stop|start|logs)((?: [\w-]+)+)/g
    for (const document of documents)
      for (const [text, words = ''] of (await read(document)).matchAll(started)) {
        const given = words.split(' ').filter((word) => word !== '' && !word.startsWith('-'))
        const named = text.includes(' exec ') ? given.slice(0, 1) : given
        if (!named.every((name) => name in compose.services)) unknown.push(`${document}: ${text}`)
      }
    expect(unknown).toEqual([])
  })

  it('every command that a document names is in docs/cli.md', async () => {
    const tables = (await read('docs/cli.md')).matchAll(/^\| `([a-z-]+)(?: ([a-z-]+))?/gm)
    const known = new Map<string, Set<string>>()
    for (const [, group = '', command] of tables)
      known.set(group, (known.get(group) ?? new Set()).add(command ?? ''))
    const unknown: string[] = []
    for (const document of documents)
      for (const [text, group = '', command = ''] of (await read(document)).matchAll(
        /(?:integration-host|run --rm cli) ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?/g,
      )) {
        const commands = known.get(group)
        const isKnown =
          command === '' || commands?.has('') === true || commands?.has(command) === true
        if (commands === undefined || !isKnown) unknown.push(`${document}: ${text}`)
      }
    expect(unknown).toEqual([])
  })

  it('the README has at most 500 words, and the first example of a process at most 25 lines', async () => {
    const readme = await read('README.md')
    expect(readme.trim().split(/\s+/).length).toBeLessThanOrEqual(500)
    expect(readme).not.toContain('<details')
    for (const [, example = ''] of readme.matchAll(/```ts\n(.*?)```/gs))
      expect(example.trim().split('\n').length).toBeLessThanOrEqual(25)
  })

  it('no paragraph or list item of a document has more than 90 words', async () => {
    const isGuide = (document: string): boolean => !document.startsWith('docs/adr/')
    const long: string[] = []
    for (const document of documents.filter(isGuide)) {
      const text = withoutCode(await read(document)).replaceAll(/^\s*\|.*$|^#.*$/gm, '')
      for (const paragraph of text.split(/\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )/)) {
        const words = paragraph.replaceAll(/\]\([^)]*\)/g, ']').match(/\S*\w\S*/g) ?? []
        if (words.length > 90) long.push(`${document}: ${words.slice(0, 8).join(' ')} …`)
      }
    }
    expect(long).toEqual([])
  })

  it('docs/errors.md explains every error code with its status, and no other code', async () => {
    const text = await read('docs/errors.md')
    const sections = [...text.matchAll(/^### (\w+)\n(\d+)\./gm)].map(([, code, status]) => [
      code,
      Number(status),
    ])
    expect(Object.fromEntries(sections)).toEqual(
      Object.fromEntries(Object.entries(errorCodes).map(([code, { status }]) => [code, status])),
    )
  })

  it('every link between documents leads to an existing file and heading', async () => {
    const texts = new Map<string, string>()
    for (const path of documents) texts.set(path, withoutCode(await read(path)))
    const missing: string[] = []
    for (const [path, text] of texts)
      for (const [, link = ''] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
        if (/^[a-z]+:/.test(link)) continue
        const [file = '', anchor] = link.split('#')
        const target = file === '' ? path : join(path, '..', file)
        const isFound =
          anchor === undefined || !texts.has(target)
            ? existsSync(join(checkout, target))
            : anchorsOf(texts.get(target) ?? '').has(anchor)
        if (!isFound) missing.push(`${path}: ${link}`)
      }
    expect(missing).toEqual([])
  })

  it.each([
    'CredentialsFaulted',
    'TokenNearExpiry',
    'RefreshesFailing',
    'GrantsExpiring',
    'A credential is faulted',
    'RunsFailed',
    'RunsInDoubt',
    'RunsWaiting',
    'DeadMessages',
    'ProcessPaused',
    'CompanyPaused',
  ])(
    'the section %s of docs/runbook.md says what to do in the console before it names a command',
    async (heading) => {
      const section = (await read('docs/runbook.md'))
        .split(/^##+ /m)
        .find((text) => text.startsWith(`${heading}\n`))
        ?.replaceAll(/^> .*$/gm, '')
      // The names of pages and buttons are in italics. A command may stand without the name of the program.
      const page = section?.search(/(?<!\*)\*[^*\n]+\*(?!\*)/) ?? -1
      const command =
        section?.search(
          /`(?:npx --no -- )?(?:integration-host |credentials |transactions |dead-letters |processes )/,
        ) ?? -1
      expect(page).toBeGreaterThanOrEqual(0)
      expect(command === -1 || page < command).toBe(true)
    },
  )

  it('docs/security.md names only existing tests, by file and title', async () => {
    const text = await read('docs/security.md')
    const references = [...text.matchAll(/`([\w./-]+\.test\.ts)`: ((?:"[^"]+"(?:, )?)+)/g)].flatMap(
      ([, file = '', titles = '']) =>
        [...titles.matchAll(/"([^"]+)"/g)].map(([, title = '']) => [file, title] as const),
    )
    expect(references.length).toBeGreaterThan(30)
    const missing: string[] = []
    for (const [file, title] of references) {
      // The test file must contain the referenced test title literally. Only quotes can be escaped in the test file,
      // so backslashes are removed first.
      const source = (await read(file).catch(() => '')).replaceAll('\\', '')
      if (!source.includes(title)) missing.push(`${file}: ${title}`)
    }
    expect(missing).toEqual([])
    for (const [, file = ''] of text.matchAll(/`([\w./-]+\.test\.ts)`/g))
      expect(references.map(([named]) => named)).toContain(file)
  })

  it('docs/clusters.md names only files, settings and faults of test:cluster that exist', async () => {
    const text = await read('docs/clusters.md')
    const settings = await read('docs/settings.md')
    for (const [, name = ''] of text.matchAll(/`([A-Z]+_[A-Z_]+)(?:=\d+)?`/g))
      expect(settings.includes(`\`${name}\``), name).toBe(true)
    const faults = await read('tests/cluster/faults.ts')
    for (const [, name = ''] of text.matchAll(
      /`((?:redis|rabbitmq|postgres|machine|services|token-service|coordinator|clock)-[a-z]+(?:-[a-z]+)*)`/g,
    ))
      expect(name === 'rabbitmq-queues' || faults.includes(`'${name}'`), name).toBe(true)
    const files = [...text.matchAll(/`((?:tests|packages|services|deploy)\/[\w./-]+)`/g)]
    expect(files.length).toBeGreaterThan(3)
    for (const [, file = ''] of files) expect(await read(file), file).not.toBe('')
  })

  it('a code example in the documents passes the type check if it imports only the package', async () => {
    const root = new URL('../', import.meta.url)
    const names = (await readdir(new URL('docs/', root))).filter((name) => name.endsWith('.md'))
    const folder = await mkdtemp(new URL('tests/examples-', root).pathname)
    try {
      let count = 0
      for (const path of ['README.md', 'host/template/README.md', ...names.map((n) => `docs/${n}`)])
        for (const [, example = ''] of (await read(path)).matchAll(/```ts\n(.*?)```/gs))
          if (/^import .* from 'integration-host/m.test(example) && !/…|from '\.\//.test(example)) {
            count += 1
            await writeFile(join(folder, `${basename(path, '.md')}-${count}.ts`), example)
          }
      expect(count).toBeGreaterThan(3)
      const declared = '../../packages/fast-http/src/llhttp.d.ts'
      const config = { extends: '../../tsconfig.json', include: ['*.ts', declared] }
      await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config))
      const args = ['scripts/bootstrap.mjs', '--dev', '--bin', 'tsc', '--project', folder]
      const { code, stdout } = await runProcess(args, { cwd: root.pathname })
      expect([code, stdout]).toEqual([0, expect.not.stringContaining('error TS')])
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it('no command in a document passes a service key as an argument, which other users could see', async () => {
    const names = (await readdir(new URL('../docs/', import.meta.url))).filter((name) =>
      name.endsWith('.md'),
    )
    for (const path of ['README.md', 'CONTRIBUTING.md', ...names.map((name) => `docs/${name}`)])
      expect(await read(path), path).not.toMatch(/(-H|--header) ?["'][^"']*Bearer \$/)
  })

  it('docs/settings.md lists every setting that a service reads, and no other setting', async () => {
    const documented = new Set(
      [...(await read('docs/settings.md')).matchAll(/`([A-Z][A-Z_]{3,})`/g)].map(
        ([, name]) => name,
      ),
    )
    const declared = new Set<string>(['SERVICE_API_KEYS'])
    for (const service of [
      'token-service',
      'accounting-gateway',
      'coordinator',
      'webhook-receiver',
      'console',
      'demo-api',
      'sandbox-provider',
    ]) {
      const source = await read(`services/${service}/src/config.ts`)
      for (const [, name = ''] of source.matchAll(/^\s{2,}([A-Z][A-Z_]{3,}):/gm)) declared.add(name)
      if (source.includes('forwardProxySettings()'))
        for (const name of ['HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY']) declared.add(name)
      if (source.includes('productSettings()'))
        for (const name of ['NAME', 'LOGO', 'SUPPORT']) declared.add(`PRODUCT_${name}`)
      for (const [, prefix = ''] of source.matchAll(/tlsSettings\('([A-Z]+)'\)/g))
        for (const kind of ['CA', 'CERT', 'KEY']) declared.add(`${prefix}_${kind}_FILE`)
    }
    for (const name of ['HOST', 'PORT', 'LOG_LEVEL']) declared.add(name)
    const undocumented = [...declared].filter((name) => !documented.has(name))
    const unknown = [...documented].filter((name = '') => name !== 'X_FILE' && !declared.has(name))
    expect({ undocumented, unknown }).toEqual({ undocumented: [], unknown: [] })
  })
})

/** Returns the anchors of the headings of a document. Of equal headings, those after the first one have a number. */
function anchorsOf(text: string): ReadonlySet<string> {
  const anchors = new Set<string>()
  for (const [, heading = ''] of text.matchAll(/^#+ (.*)$/gm)) {
    const words = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
    const anchor = words.replaceAll(/[^\p{L}\p{N}_\- ]/gu, '').replaceAll(' ', '-')
    let count = 0
    while (anchors.has(count === 0 ? anchor : `${anchor}-${count}`)) count += 1
    anchors.add(count === 0 ? anchor : `${anchor}-${count}`)
  }
  return anchors
}
