import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

const exclude = ['**/node_modules/**']

const support = (file: string): string =>
  fileURLToPath(new URL(`tests/support/${file}`, import.meta.url))

export default defineConfig({
  // Every service under test is held to its OpenAPI document.
  resolve: {
    alias: { '@integration-host/shared/http/service-app': support('openapi/service-app.ts') },
  },
  test: {
    setupFiles: [support('openapi/hold-tests.ts')],
    pool: 'forks',
    // Two cores are the smallest machine the suite is meant for, and the servers need a share as well.
    maxWorkers: 2,
    testTimeout: 90_000,
    hookTimeout: 90_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: [
            '{services,packages,host,scripts,examples}/**/*.test.ts',
            'tests/*.test.ts',
            'tests/support/**/*.test.ts',
          ],
          exclude: [...exclude, '**/*.integration.test.ts'],
        },
      },
      {
        extends: true,
        test: {
          // The gateway's behaviour must not depend on its fast path (ADR 14).
          name: 'gateway without fast path',
          env: { FAST_PATH: 'off' },
          include: ['services/accounting-gateway/src/{listener,service,service.*}.test.ts'],
        },
      },
      {
        extends: true,
        test: {
          name: 'integration',
          include: ['**/*.integration.test.ts', 'tests/*/**/*.test.ts'],
          exclude: [...exclude, 'tests/support/**'],
          // Only these need PostgreSQL, Redis and RabbitMQ; a run of unit tests alone starts none.
          globalSetup: ['tests/support/backends.ts'],
        },
      },
    ],
  },
})
