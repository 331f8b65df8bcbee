/**
 * `npm test` runs two projects: `unit` needs no network; `integration` has the contracts on PostgreSQL, Redis and RabbitMQ,
 * which `tests/support/backends/find-backends.ts` finds or starts, and ten flows through the whole system.
 *
 * `npm run test:all` runs two more: `campaigns` has everything that takes minutes (faults, security, fuzzing, browsers, all
 * flows) and the contracts on backends that `npm test` does not need (`*.campaign.test.ts`); `gateway without fast path`
 * repeats tests of the gateway.
 *
 * The files of `unit` and `integration` share the modules of their worker (`isolate: false`), which saves a third of the
 * processor time. A test therefore undoes what it changes in a module or in the environment.
 *
 * In all projects a module is replaced. Every import of `@integration-host/shared/http/service-app` in a test or a
 * service resolves to `tests/support/openapi/checked-service-app.ts`, which compares each response of a service with
 * the service's OpenAPI document. The setup file `check-after-each-test.ts` fails a test if a response deviated. So
 * the documents are verified by every test that calls a service, and not by a few tests written for it.
 */
import { fileURLToPath } from 'node:url'
import { defineConfig, type ViteUserConfig } from 'vitest/config'
import { gatewayWithoutFastPath } from './packages/fast-http/gateway-project.ts'

// Node stores compiled modules in this folder, also for the services and commands that tests start. Compiling is a third of
// the processor time that the start of a service or of a test file needs.
process.env['NODE_COMPILE_CACHE'] ??= fileURLToPath(
  new URL('node_modules/.compile-cache', import.meta.url),
)

// The tests of a new project run with `node --test`, in tests/flows/package.test.ts.
const exclude = ['**/node_modules/**', 'host/template/**']

const support = (file: string): string =>
  fileURLToPath(new URL(`tests/support/${file}`, import.meta.url))

// Only these projects need PostgreSQL, Redis and RabbitMQ, so a run of the unit tests alone starts none of them.
const BACKENDS = ['tests/support/backends/find-backends.ts']

const FLOWS = [
  'books',
  'change-feed',
  'cli-doctor-work',
  'batch-in-doubt',
  'dead-letters',
  'order',
  'provider-webhooks',
  'realm',
  'replayed-post',
  'tracing',
].map((name) => `tests/flows/${name}.test.ts`)

const CAMPAIGNS = [
  {
    extends: true as const,
    test: {
      name: 'campaigns',
      include: ['**/*.campaign.test.ts', 'tests/*/**/*.test.ts'],
      exclude: [...exclude, ...FLOWS, 'tests/{cluster,console,support}/**'],
      globalSetup: BACKENDS,
    },
  },
  gatewayWithoutFastPath,
]

/** What the tests of the console share. */
export const base = {
  resolve: {
    alias: {
      '@integration-host/shared/http/service-app': support('openapi/checked-service-app.ts'),
      'integration-host/client': fileURLToPath(
        new URL('packages/client/src/client.ts', import.meta.url),
      ),
      'integration-host/testing': fileURLToPath(
        new URL('host/src/testing/testing.ts', import.meta.url),
      ),
      // Outside of tests, the resolve hook of the coordinator resolves this import in process files.
      'integration-host': fileURLToPath(
        new URL('services/coordinator/src/step/api.ts', import.meta.url),
      ),
    },
  },
  test: {
    setupFiles: [support('openapi/check-after-each-test.ts')],
    pool: 'forks',
    // The suite must pass on a machine with two cores, and the servers under test need processor time as
    // well. Tests spend more than half of their time waiting for timeouts and servers, so a third worker shortens the
    // suite by a quarter on such a machine.
    maxWorkers: 3,
    testTimeout: 90_000,
    hookTimeout: 90_000,
    // vitest's default of one second is too short on a loaded machine.
    expect: { poll: { timeout: 30_000, interval: 20 } },
  },
} satisfies ViteUserConfig

export default defineConfig(({ mode }) => ({
  ...base,
  test: {
    ...base.test,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          isolate: false,
          include: [
            '{services,packages,host,scripts,examples}/**/*.test.ts',
            'tests/{,cluster/}*.test.ts',
            'tests/support/**/*.test.ts',
          ],
          exclude: [...exclude, '**/*.{integration,campaign}.test.ts'],
        },
      },
      {
        extends: true,
        test: {
          name: 'integration',
          isolate: false,
          include: ['**/*.integration.test.ts', ...FLOWS],
          exclude,
          globalSetup: BACKENDS,
        },
      },
      ...(mode === 'all' ? CAMPAIGNS : []),
    ],
  },
}))
