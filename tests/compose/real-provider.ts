/**
 * Steps of `npm run test:compose` for `--profile real`. A test cannot use a real provider. Therefore a sandbox
 * provider, which runs outside of the stack under another host name, takes the place of the real provider.
 */
import { tellStory } from '../../host/src/story.ts'
import { expect, failureReport } from './check.ts'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import type { Environment } from './docker.ts'
import { type Stack, words } from './stack.ts'

/** The settings that an operator would write into .env. */
const OPERATOR_ENV = {
  CLIENT_ID: 'an-application-of-mine',
  CLIENT_SECRET: 'a-client-secret-that-must-not-be-shown',
  DISCOVERY_URL: 'http://provider.example:7220/.well-known/openid_configuration',
  ACCOUNTING_URL: 'http://provider.example:7220',
  WEBHOOK_VERIFIER_TOKENS: 'a-verifier-token-that-must-not-be-shown',
} as const

/**
 * Starts `--profile real` while some of its required settings are missing.
 *
 * @returns the error message, which names the missing settings
 */
export function settingsMissing(stack: Stack): Promise<string> {
  return rejectedTwice(
    stack,
    { CLIENT_SECRET: '', WEBHOOK_VERIFIER_TOKENS: '', CLIENT_ID: 'mine' },
    'set DISCOVERY_URL, ACCOUNTING_URL, REDIRECT, CLIENT_SECRET in .env',
  )
}

/**
 * Starts `--profile real` while companies are connected at the sandbox provider. The start must fail, because the
 * real provider would reject the tokens of these companies.
 *
 * @returns the error message
 */
export function sandboxKept(stack: Stack): Promise<string> {
  const REDIRECT = `${stack.at('TOKEN_SERVICE_PORT')}/callback`
  return rejectedTwice(
    stack,
    { ...OPERATOR_ENV, REDIRECT },
    'companies connected at the sandbox provider',
  )
}

/** Checks that the container `real-provider` fails, and that `init` then fails as well instead of using the sandbox. */
async function rejectedTwice(stack: Stack, env: Environment, why: string): Promise<string> {
  failureReport(await realProviderOnce(stack, env), why)
  return failureReport(await stack.init(), why)
}

/** Connects a company at the provider that the settings name, and runs the demo with this company. */
export async function realProvider(stack: Stack): Promise<void> {
  const port = await freePort()
  const REDIRECT = `${stack.at('TOKEN_SERVICE_PORT')}/callback`
  const env = {
    ...OPERATOR_ENV,
    REDIRECT,
    COMPOSE_PROFILES: 'real',
    SANDBOX_REPLICAS: '0',
    SANDBOX_URL: '',
  }
  await stack.compose(['up', '--detach'], env)
  await stack.docker(
    words(`run --detach --rm --init --name ${stack.outsider} --publish 127.0.0.1:${port}:7220
      --network ${stack.project}_edge --network-alias provider.example
      --env HOST=0.0.0.0 --env CLIENT_ID=${OPERATOR_ENV.CLIENT_ID} --env CLIENT_SECRET=${OPERATOR_ENV.CLIENT_SECRET}
      --env REDIRECT=${REDIRECT} --env BASE_URL=${OPERATOR_ENV.ACCOUNTING_URL}
      --env BROWSER_URL=http://127.0.0.1:${port}
      integration-host:${stack.project} node services/sandbox-provider/src/main.ts`),
  )
  await stack.compose(['up', '--wait'], env)
  await tellStory(await stack.installation(), { stage() {}, line() {} })
  const { text, containers } = await stack.inspect()
  for (const name of ['CLIENT_SECRET', 'WEBHOOK_VERIFIER_TOKENS'] as const)
    expect(!text.includes(OPERATOR_ENV[name]), `docker inspect shows ${name}`)
  const token = await stack.read('webhook-receiver', '/secrets/webhook_verifier_tokens')
  expect(token === OPERATOR_ENV.WEBHOOK_VERIFIER_TOKENS, 'the receiver has another verifier token')
  const isThere = containers.some(({ Name }) => Name.includes('sandbox-provider'))
  expect(!isThere, 'the sandbox provider runs as well')
  const report = failureReport(
    await realProviderOnce(stack, { CLIENT_SECRET: '', WEBHOOK_VERIFIER_TOKENS: '' }),
    'in .env',
  )
  expect(!report.includes(OPERATOR_ENV.CLIENT_SECRET), 'a message shows CLIENT_SECRET')
}

function realProviderOnce(stack: Stack, env: Environment) {
  return stack.tryCompose(words('--profile real run --rm --no-deps -T real-provider'), env)
}
