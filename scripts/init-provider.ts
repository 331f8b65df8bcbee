// `docker compose --profile real`: replaces the sandbox by the provider that .env names. Writes the settings of this
// provider to the files that `init` distributes to the services.
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  INIT,
  readSecret,
  PROVIDER_REJECTION,
  SANDBOX_DISCOVERY_URL,
  writeSecret,
} from './secret-file.ts'

const ROOT = process.argv[2] ?? '/volumes/service-secrets'
const at = (name: string): string => join(ROOT, name.toLowerCase())

const settings: Readonly<Record<string, string>> = {
  DISCOVERY_URL: process.env['DISCOVERY_URL'] ?? '',
  ACCOUNTING_URL: process.env['ACCOUNTING_URL'] ?? '',
  REDIRECT: process.env['REDIRECT'] ?? '',
  CLIENT_ID: process.env['CLIENT_ID'] ?? '',
  // `docker inspect` shows the environment of a container, so the client secret is read from a file.
  CLIENT_SECRET: readSecret(process.env['CLIENT_SECRET_FILE'] ?? '') ?? '',
}

// The token is optional, because Intuit shows it only after an operator has entered the address of webhook-receiver at
// Intuit.
const verifierTokens = readSecret(process.env['WEBHOOK_VERIFIER_TOKENS_FILE'] ?? '') ?? ''

const isUrl = (text: string): boolean => /^https?:\/\//.test(text) && URL.canParse(text)
const missing = Object.keys(settings).filter((name) => settings[name] === '')
const bad = ['DISCOVERY_URL', 'ACCOUNTING_URL', 'REDIRECT'].filter(
  (name) => !missing.includes(name) && !isUrl(settings[name] ?? ''),
)
const known = readSecret(at('DISCOVERY_URL'))

if (missing.length > 0)
  fail(`set ${missing.join(', ')} in .env; .env.example says what each of them is`)
if (bad.length > 0) fail(`${bad.join(', ')} in .env must be http(s) URLs`)
// The stored refresh tokens are from the sandbox. With the new settings token-service would send them to the real
// provider, which would reject them.
if (known === SANDBOX_DISCOVERY_URL)
  fail(
    'this installation has companies connected at the sandbox provider. Keep it and start another one beside it ' +
      '(docker compose --project-name real --profile real up), or delete all data: docker compose down --volumes',
  )

for (const [name, value] of Object.entries(settings)) writeSecret(at(name), INIT, value)
if (verifierTokens !== '') writeSecret(at('WEBHOOK_VERIFIER_TOKENS'), INIT, verifierTokens)
rmSync(at(PROVIDER_REJECTION), { force: true })

function fail(why: string): never {
  const message = `The real provider cannot be used: ${why}`
  writeFileSync(at(PROVIDER_REJECTION), message)
  console.error(message)
  process.exit(1)
}
