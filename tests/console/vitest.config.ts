import { fileURLToPath } from 'node:url'
import { mergeConfig } from 'vitest/config'
import { base } from '../../vitest.config.ts'

const quickIntervals = {
  find: /^\.\/read-intervals\.ts$/,
  replacement: fileURLToPath(new URL('quick-intervals.ts', import.meta.url)),
}

/** `npm run test:console`: the web console in a real browser. These tests are not part of `npm run test:all`. */
export default mergeConfig(base, {
  resolve: { alias: [quickIntervals] },
  test: {
    include: ['tests/console/**/*.test.ts'],
    // The test files of a worker share the loaded modules. Loading the modules again for each file would take a tenth
    // of the total time.
    isolate: false,
    maxWorkers: 3,
  },
})
