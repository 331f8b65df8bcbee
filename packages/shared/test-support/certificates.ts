/** Creates certificates for TLS tests with the program `openssl`. No certificate or key is checked in. */
import { execFile } from 'node:child_process'
import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

export interface Certificate {
  readonly certFile: string
  readonly keyFile: string
}

export interface Authority extends AsyncDisposable {
  /** A folder for this authority only, which is removed when the authority is disposed. */
  readonly folder: string
  /** The certificate of the authority. */
  readonly caFile: string
  /**
   * Issues a certificate.
   *
   * @param subject the common name; also the name of the files
   * @param names the subject alternative names as openssl writes them, such as `DNS:localhost,IP:127.0.0.1`
   */
  issue(subject: string, names?: string, validity?: 'valid' | 'expired'): Promise<Certificate>
}

export const LOOPBACK_NAMES = 'DNS:localhost,IP:127.0.0.1'

/** Creates a certificate authority with a new key. */
export async function createAuthority(): Promise<Authority> {
  const folder = await mkdtemp(join(tmpdir(), 'certificates-'))
  const file = (name: string): string => join(folder, name)
  const request = async (subject: string, out: string, ...options: string[]): Promise<string> => {
    const keyFile = file(`${subject}.key`)
    const key = [
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-nodes',
      '-keyout',
      keyFile,
    ]
    await run('openssl', ['req', ...key, '-out', out, '-subj', `/CN=${subject}`, ...options])
    return keyFile
  }
  const caFile = file('authority.pem')
  const caKey = await request('authority', caFile, '-x509', '-days', '2')
  const config = file('ca.conf')
  await writeFile(file('index'), '')
  await writeFile(config, CONFIG.replaceAll('FOLDER', folder))
  return {
    folder,
    caFile,
    async issue(subject, names = LOOPBACK_NAMES, validity = 'valid') {
      const [requestFile, certFile] = [file(`${subject}.csr`), file(`${subject}.pem`)]
      const keyFile = await request(subject, requestFile)
      const extensions = file(`${subject}.ext`)
      await writeFile(extensions, `subjectAltName=${names}\nbasicConstraints=CA:FALSE\n`)
      const issuer = ['-config', config, '-cert', caFile, '-keyfile', caKey]
      const files = ['-in', requestFile, '-out', certFile, '-extfile', extensions]
      const dates =
        validity === 'valid'
          ? ['-days', '2']
          : ['-startdate', '20200101000000Z', '-enddate', '20200102000000Z']
      await run('openssl', ['ca', '-batch', '-notext', ...issuer, ...files, ...dates])
      return { certFile, keyFile }
    },
    async [Symbol.asyncDispose]() {
      await rm(folder, { recursive: true })
    },
  }
}

/**
 * Returns the paths of a certificate file and a key file in a folder. Also returns a function that copies another
 * certificate and its key to these paths.
 */
export function rotatingFiles(folder: string): {
  readonly files: Certificate
  readonly rotate: (to: Certificate) => Promise<void>
} {
  const files = { certFile: join(folder, 'rotating.pem'), keyFile: join(folder, 'rotating.key') }
  return {
    files,
    async rotate(to) {
      await copyFile(to.certFile, files.certFile)
      await copyFile(to.keyFile, files.keyFile)
    },
  }
}

/** `openssl req` cannot issue a certificate that has already expired, so `openssl ca` is used. */
const CONFIG = `
[ca]
default_ca = authority
[authority]
database = FOLDER/index
new_certs_dir = FOLDER
rand_serial = yes
unique_subject = no
default_md = sha256
policy = policy
[policy]
commonName = supplied
`
