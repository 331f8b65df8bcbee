/**
 * The PEM files for TLS to a backend. `X_CA_FILE` has the certificates of the authorities that this client trusts to
 * issue the backend's certificate. `X_CERT_FILE` and `X_KEY_FILE` have the certificate and the private key of this
 * client.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { z } from 'zod'

/**
 * For each backend with TLS settings, the scheme of a URL that uses TLS. The scheme is `null` if another part of the
 * URL decides whether TLS is used.
 */
const tlsSchemes = { REDIS: 'rediss', AMQP: 'amqps', DATABASE: null } as const
type Prefix = keyof typeof tlsSchemes
const prefixes = Object.keys(tlsSchemes) as readonly Prefix[]

type FileSetting<Name extends Prefix> = `${Name}_${'CA' | 'CERT' | 'KEY'}_FILE`
const path = z.string().optional()

/** The content of the files, as options of `tls.connect`. A file that is not configured is absent. */
export interface TlsContent {
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
}

export interface TlsFiles {
  /** Whether a client certificate is configured. */
  readonly hasCertificate: boolean
  /**
   * Reads the files. Called for each new connection, so that rotated files are used. If the files cannot be used at
   * this time, the last usable content is returned. This happens, for example, when a rotation has replaced the
   * certificate but not yet the key.
   */
  read(): TlsContent
}

/** The three path settings of a backend. {@link tlsProblems} checks the files themselves. */
export const tlsSettings = <Name extends Prefix>(
  prefix: Name,
): { readonly [Setting in FileSetting<Name>]: typeof path } =>
  // TypeScript widens computed keys to `string`. The cast restores their exact types.
  ({
    [`${prefix}_CA_FILE`]: path,
    [`${prefix}_CERT_FILE`]: path,
    [`${prefix}_KEY_FILE`]: path,
  }) as { readonly [Setting in FileSetting<Name>]: typeof path }

/** Returns the configured files of a backend; `undefined` if none is configured. */
export function tlsFiles<Name extends Prefix>(
  prefix: Name,
  settings: { readonly [Setting in FileSetting<Name>]?: string | undefined },
): TlsFiles | undefined {
  const paths: Values = settings
  let { content } = load(prefix, paths)
  if (Object.keys(content).length === 0) return undefined
  return {
    hasCertificate: content.cert !== undefined,
    read() {
      const current = load(prefix, paths)
      if (current.problems.length === 0) content = current.content
      return content
    },
  }
}

/**
 * Returns a line for each problem with the TLS settings in `shape`. A problem is a file that is missing, empty or not
 * PEM, a key that does not belong to the certificate, or a file for a URL without TLS. No line contains the value of a
 * setting.
 */
export const tlsProblems = (shape: object, values: Values): readonly string[] =>
  prefixes
    .filter((prefix) => `${prefix}_CA_FILE` in shape)
    .flatMap((prefix) => [...load(prefix, values).problems, ...schemeProblems(prefix, values)])

type Values = Readonly<Record<string, string | undefined>>

function schemeProblems(prefix: Prefix, values: Values): readonly string[] {
  const scheme = tlsSchemes[prefix]
  const configured = ['CA', 'CERT', 'KEY']
    .map((kind) => `${prefix}_${kind}_FILE`)
    .find((name) => values[name] !== undefined)
  if (scheme === null || configured === undefined) return []
  return values[`${prefix}_URL`]?.startsWith(scheme)
    ? []
    : [`${configured}: needs a ${prefix}_URL with TLS, which starts with ${scheme}`]
}

function load(
  prefix: Prefix,
  paths: Values,
): { readonly content: TlsContent; readonly problems: readonly string[] } {
  const problems: string[] = []
  const read = (kind: 'CA' | 'CERT' | 'KEY', check: (pem: string) => string | null) => {
    const name = `${prefix}_${kind}_FILE`
    const file = paths[name]
    if (file === undefined) return undefined
    const [pem, problem] = readPem(file, check)
    if (problem !== null) problems.push(`${name}: ${problem}`)
    return pem
  }
  const ca = read('CA', certificateProblem)
  const cert = read('CERT', certificateProblem)
  const key = read('KEY', keyProblem)
  const [certName, keyName] = [`${prefix}_CERT_FILE`, `${prefix}_KEY_FILE`]
  for (const [one, other] of [
    [certName, keyName],
    [keyName, certName],
  ] as const)
    if (paths[one] !== undefined && paths[other] === undefined)
      problems.push(`${one}: needs ${other} as well`)
  if (problems.length === 0 && cert !== undefined && key !== undefined && !isPair(cert, key))
    problems.push(`${keyName}: the key does not belong to the certificate in ${certName}`)
  const content = {
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
  }
  return { content, problems }
}

function readPem(
  file: string,
  check: (pem: string) => string | null,
): readonly [pem: string, problem: string | null] {
  try {
    const pem = readFileSync(file, 'utf8')
    return [pem, pem.trim() === '' ? 'the file is empty' : check(pem)]
  } catch (error) {
    const { code = 'unknown' } = error as NodeJS.ErrnoException
    return ['', `the file cannot be read (${code})`]
  }
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

function certificateProblem(pem: string): string | null {
  const certificates = pem.match(CERTIFICATE) ?? []
  if (certificates.length === 0) return 'the file contains no PEM certificate'
  return certificates.every((one) => parses(() => new X509Certificate(one)))
    ? null
    : 'the file contains a certificate that cannot be parsed'
}

const keyProblem = (pem: string): string | null =>
  parses(() => createPrivateKey(pem))
    ? null
    : 'the file contains no PEM private key, or an encrypted one'

const isPair = (cert: string, key: string): boolean =>
  new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))

function parses(parse: () => unknown): boolean {
  try {
    parse()
    return true
  } catch {
    return false
  }
}
