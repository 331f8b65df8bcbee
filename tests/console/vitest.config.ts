import { mergeConfig } from 'vitest/config'
import base from '../../vitest.config.ts'

/** `npm run test:console`: the web console in a real browser. These tests are not part of `npm test`. */
const { projects: _, ...test } = base.test ?? {}
export default mergeConfig(
  { ...base, test },
  {
    test: {
      include: ['tests/console/**/*.test.ts'],
      setupFiles: ['tests/console/quick-reads.ts'],
      maxWorkers: 3,
    },
  },
)
