// `npm run verify`: runs the checks that every change must pass. `npm run verify -- lint types` runs only the named
// checks.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { installBench } from './install-bench.ts'

const root = join(import.meta.dirname, '..')

/** The stages in the order in which they run. The quick stages run first. */
const stages: Readonly<Record<string, readonly (readonly [program: string, ...args: string[]])[]>> =
  {
    format: [['oxfmt', '--check']],
    lint: [['oxlint', '--type-aware']],
    types: [
      ['tsc', '--project', 'tsconfig.json'],
      // The browser program of the console is checked with browser types instead of the types of Node.
      ['tsc', '--project', 'services/console/app/tsconfig.json'],
    ],
    unused: [['knip']],
    regexps: [
      [
        'oxlint',
        '--config',
        'scripts/regular-expressions/oxlintrc.json',
        // Tests read no text that others choose.
        '--ignore-pattern=**/*.test.ts',
        '--ignore-pattern=**/*.contract.ts',
        '--ignore-pattern=**/test-support/**',
        'packages',
        'services',
        'host',
        'scripts',
        'deploy',
      ],
    ],
    test: [['vitest', 'run']],
  }

/**
 * The stages that read the types of packages of bench/. Those packages are installed separately by
 * scripts/install-bench.ts.
 */
const NEED_BENCH = ['lint', 'types', 'unused']

const wanted = process.argv.slice(2)
const unknown = wanted.filter((name) => !(name in stages))
if (unknown.length > 0) {
  console.error(
    `No such stage: ${unknown.join(', ')}. There are: ${Object.keys(stages).join(', ')}.`,
  )
  process.exit(1)
}

for (const [name, commands] of Object.entries(stages)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  if (NEED_BENCH.includes(name)) installBench()
  for (const [program, ...args] of commands) run(name, program, args)
}

/** Runs one command of a stage. Exits if it fails. */
function run(name: string, program: string, args: readonly string[]): void {
  console.log(`\n── ${name}: ${[program, ...args].join(' ')}`)
  const startedAt = performance.now()
  const { status, signal, error } = spawnSync(join(root, 'node_modules/.bin', program), args, {
    cwd: root,
    stdio: 'inherit',
  })
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
  if (status !== 0) {
    const reason = error?.message ?? signal ?? `exit code ${status}`
    console.error(`\n✗ ${name} failed after ${seconds} s (${reason}); later stages were not run`)
    process.exit(status ?? 1)
  }
  console.log(`✓ ${name} in ${seconds} s`)
}
