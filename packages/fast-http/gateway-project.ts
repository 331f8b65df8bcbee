/**
 * The test project that repeats the tests of the gateway without its fast path, because the behaviour of the gateway must
 * not depend on it (docs/adr/0014). `npm run test:all` runs it.
 */
export const gatewayWithoutFastPath = {
  extends: true as const,
  test: {
    name: 'gateway without fast path',
    env: { FAST_PATH: 'off' },
    include: ['services/accounting-gateway/src/{listener,service,service.*}.test.ts'],
  },
}
