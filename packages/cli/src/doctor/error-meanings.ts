/** What the error codes of sockets, drivers and servers mean, and what an operator can do about them. */

type Meaning = readonly [found: string, remedy: string]

const CREDENTIALS_REJECTED: Meaning = [
  'rejects the user or the password',
  'Set the correct user and password.',
]
const UNRESPONSIVE: Meaning = [
  'does not respond in time',
  'Check that the server is running and that no firewall blocks the connection.',
]
const UNTRUSTED: Meaning = [
  'presents a certificate that is not trusted here',
  'Set NODE_EXTRA_CA_CERTS to the certificate of its authority.',
]
const UNREACHED: Meaning = [
  'the network cannot reach it',
  'Set the right address, or fix the network.',
]
const ENDED: Meaning = [
  'ends the connection',
  'Check that it is the right server, and whether it needs TLS. Its log has the reason.',
]
const NOT_HTTP: Meaning = ['does not speak HTTP', 'Set the right address and port.']
const STOPPED: Meaning = ['is shutting down or was stopped', 'Start it, or wait for its restart.']
const LOADING: Meaning = ['is starting up', 'Wait until it has loaded its data.']
const NO_CLUSTER: Meaning = [
  'is a node of Redis Cluster, which is not supported',
  'Use Sentinel or a single primary.',
]
const NO_TABLES: Meaning = [
  'lacks the tables of this version',
  'Start a coordinator, which migrates the database.',
]

const socket: Readonly<Record<string, Meaning>> = {
  ECONNREFUSED: ['no process listens there', 'Start it, or set the right address.'],
  ENOTFOUND: ['there is no such host', 'Set the right address.'],
  EAI_AGAIN: ['the host name cannot be resolved now', 'Check that the name server is running.'],
  EHOSTUNREACH: UNREACHED,
  ENETUNREACH: UNREACHED,
  EHOSTDOWN: UNREACHED,
  EADDRNOTAVAIL: UNREACHED,
  ECONNRESET: ENDED,
  ECONNABORTED: ENDED,
  EPIPE: ENDED,
  UND_ERR_SOCKET: ENDED,
  ETIMEDOUT: UNRESPONSIVE,
  CONNECT_TIMEOUT: UNRESPONSIVE,
  UND_ERR_CONNECT_TIMEOUT: UNRESPONSIVE,
  UND_ERR_HEADERS_TIMEOUT: UNRESPONSIVE,
  UND_ERR_BODY_TIMEOUT: UNRESPONSIVE,
  TimeoutError: UNRESPONSIVE,
  DeadlinePassed: UNRESPONSIVE,
  HPE_INVALID_CONSTANT: NOT_HTTP,
  HPE_INVALID_VERSION: NOT_HTTP,
  EPROTO: ['does not speak TLS there', 'Use the TLS port, or an address without TLS.'],
  EMFILE: ['this machine has too many open files', 'Raise the limit of open files (ulimit -n).'],
  ERR_SSL_WRONG_VERSION_NUMBER: [
    'does not speak TLS there',
    'Use the TLS port, or an address without TLS.',
  ],
  ERR_TLS_CERT_ALTNAME_INVALID: [
    'presents a certificate for another host name',
    'Use a name that the certificate contains.',
  ],
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  CERT_HAS_EXPIRED: ['presents a certificate that has expired', 'Renew it.'],
  CERT_NOT_YET_VALID: ['presents a certificate that is not valid yet', 'Check the clocks.'],
}

/** The first words of Redis' error replies. */
const redis: Readonly<Record<string, Meaning>> = {
  WRONGPASS: CREDENTIALS_REJECTED,
  NOAUTH: ['needs a password', 'Set it in the address.'],
  NOPERM: ['denies this user a needed permission', 'Allow it +info, +time and +config|get.'],
  DENIED: ['accepts connections from its own machine only', 'Set a password there.'],
  LOADING,
  BUSY: ['is busy with a script', 'Wait, or end the script: SCRIPT KILL.'],
  MISCONF: ['cannot save to its disk', 'Check the disk, and the log of Redis.'],
  OOM: ['has reached maxmemory', 'Raise maxmemory, or delete data that is not needed.'],
  READONLY: ['is a replica', 'Point the address at the primary.'],
  MASTERDOWN: ['is a replica that has lost its primary', 'Point the address at the primary.'],
  NOREPLICAS: ['has too few replicas and rejects writes', 'Start the replicas.'],
  CLUSTERDOWN: NO_CLUSTER,
  MOVED: NO_CLUSTER,
  ASK: NO_CLUSTER,
  CROSSSLOT: NO_CLUSTER,
}

/** SQLSTATE codes of PostgreSQL, and error codes of the PostgreSQL driver. */
const postgres: Readonly<Record<string, Meaning>> = {
  '28P01': [
    'has another password for this user, or no such user',
    'Set the correct user and password.',
  ],
  '28000': [
    'does not allow this user, host or encryption',
    'Correct pg_hba.conf, the role, or sslmode in the address.',
  ],
  '3D000': ['has no such database', 'Create it, or set the right name.'],
  '53100': ['has a full disk', 'Free space on its disk.'],
  '53200': ['is out of memory', 'Give it more memory, or end other sessions.'],
  '53300': ['has no free connection', 'Raise max_connections, or end other connections.'],
  '42704': ['does not know a parameter of the address', 'Remove this parameter.'],
  '55000': ['has a database that accepts no connections', 'Use another one, or allow them.'],
  '57014': UNRESPONSIVE,
  '57P01': STOPPED,
  '57P02': ['has crashed and is recovering', 'Wait. Its log has the reason.'],
  '57P03': ['is starting up or shutting down', 'Wait.'],
  '58030': ['cannot read or write its files', 'Check its disk, and its log.'],
  '25006': ['is read-only', 'Point the address at the primary.'],
  '42501': ['denies this user a needed permission', 'Make it the owner of the database.'],
  '42P01': NO_TABLES,
  '42703': NO_TABLES,
  '08P01': [
    'rejects a parameter of the address, or a connection pooler does',
    'Remove the parameters that it does not know.',
  ],
  XX001: ['has damaged data', 'Restore a backup (docs/backup.md).'],
  XX002: ['has a damaged index', 'Run REINDEX DATABASE, and check the disk.'],
  NOT_WRITABLE: ['is a standby (read-only)', 'Add the primary to the address, or promote one.'],
  TLS_NOT_OFFERED: ['does not offer TLS', 'Set ssl = on there, or another sslmode in the address.'],
  SASL_SIGNATURE_MISMATCH: CREDENTIALS_REJECTED,
  CONNECTION_CLOSED: ENDED,
  CONNECTION_ENDED: ENDED,
  CONNECTION_DESTROYED: ENDED,
}

/** The names of AMQP reply codes, and error texts of amqplib that have no code. */
const amqp: Readonly<Record<string, Meaning>> = {
  'ACCESS-REFUSED': [
    'rejects the user, the password, or the virtual host',
    'Set the correct ones. RabbitMQ accepts guest from its own machine only.',
  ],
  'NOT-ALLOWED': [
    'has no such virtual host, or denies it to this user',
    'Set the correct virtual host.',
  ],
  'CONNECTION-FORCED': STOPPED,
  'INTERNAL-ERROR': ['has failed', 'See the log of RabbitMQ.'],
  'RESOURCE-ERROR': [
    'is out of memory or disk',
    'Free them; doctor shows the alarms of the nodes.',
  ],
  'FRAME-ERROR': ['does not speak AMQP 0-9-1 there', 'Set the right port: 5672, or 5671 with TLS.'],
  'ended the handshake': [
    'ends the connection before it is open',
    'Check the port, and whether it needs TLS. The log of RabbitMQ has the reason.',
  ],
  'ended the connection': ENDED,
  'does not respond': UNRESPONSIVE,
}

const meanings = { ...socket, ...redis, ...postgres, ...amqp }

/** Returns the meaning of an error code and its remedy; `undefined` if the code is unknown. */
export const meaningOf = (code: string): Meaning | undefined =>
  Object.hasOwn(meanings, code) ? meanings[code as keyof typeof meanings] : undefined

/** Returns the code with which a Redis error reply begins; `null` if this file has no meaning for the code. */
export const redisReplyCode = (message: string): string | null => {
  const code = /^[A-Z]{3,15}\b/.exec(message)?.[0] ?? ''
  return Object.hasOwn(redis, code) ? code : null
}
