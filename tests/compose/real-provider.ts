/** `--profile real`. The real one cannot be reached from a test: a sandbox outside of the stack, under another name, stands for it. */
import { tellStory } from '../../host/src/story.ts'
import { expect, refusal } from './check.ts'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { type Environment, type Stack, words } from './stack.ts'

/** What .env would hold. */
const MINE = {
  CLIENT_ID: 'an-application-of-mine',
  CLIENT_SECRET: 'a-client-secret-of-mine-that-nobody-sees',
  DISCOVERY_URL: 'http://provider.example:7220/.well-known/openid_configuration',
  ACCOUNTING_URL: 'http://provider.example:7220',
} as const

/** @returns the message */
export function settingsMissing(stack: Stack): Promise<string> {
  return refusedTwice(
    stack,
    { CLIENT_SECRET: '', CLIENT_ID: 'mine' },
    'set DISCOVERY_URL, ACCOUNTING_URL, REDIRECT, CLIENT_SECRET in .env',
  )
}

/** @returns the message */
export function sandboxKept(stack: Stack): Promise<string> {
  const REDIRECT = `${stack.at('TOKEN_SERVICE_PORT')}/callback`
  return refusedTwice(stack, { ...MINE, REDIRECT }, 'companies at the sandbox provider')
}

/** By `init` as well, which must not put the sandbox in its place. */
async function refusedTwice(stack: Stack, env: Environment, why: string): Promise<string> {
  refusal(await realProviderOnce(stack, env), why)
  return refusal(await stack.init(), why)
}

/** The whole story, with a company at that provider. */
export async function realProvider(stack: Stack): Promise<void> {
  const port = await freePort()
  const REDIRECT = `${stack.at('TOKEN_SERVICE_PORT')}/callback`
  const env = { ...MINE, REDIRECT, COMPOSE_PROFILES: 'real', SANDBOX_REPLICAS: '0' }
  await stack.compose(['up', '--detach'], env)
  await stack.docker(
    words(`run --detach --rm --init --name ${stack.outsider} --publish 127.0.0.1:${port}:7220
      --network ${stack.project}_edge --network-alias provider.example
      --env HOST=0.0.0.0 --env CLIENT_ID=${MINE.CLIENT_ID} --env CLIENT_SECRET=${MINE.CLIENT_SECRET}
      --env REDIRECT=${REDIRECT} --env BASE_URL=${MINE.ACCOUNTING_URL}
      --env BROWSER_URL=http://127.0.0.1:${port}
      integration-host node services/sandbox-provider/src/main.ts`),
  )
  await stack.compose(['up', '--wait'], env)
  await tellStory(await stack.installation(), { stage() {}, line() {} })
  const { text, containers } = await stack.inspect()
  expect(!text.includes(MINE.CLIENT_SECRET), 'docker inspect shows CLIENT_SECRET')
  const isThere = containers.some(({ Name }) => Name.includes('sandbox-provider'))
  expect(!isThere, 'the sandbox provider is there as well')
  const told = refusal(await realProviderOnce(stack, { CLIENT_SECRET: '' }), 'in .env')
  expect(!told.includes(MINE.CLIENT_SECRET), 'a message shows CLIENT_SECRET')
}

function realProviderOnce(stack: Stack, env: Environment) {
  return stack.tryCompose(words('--profile real run --rm --no-deps -T real-provider'), env)
}
