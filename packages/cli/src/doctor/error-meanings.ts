/**
 * What the error codes of sockets, drivers and servers mean, and what an operator can do about them: the codes, what was
 * found, and the remedy. The codes are those of sockets, TLS and HTTP; the first words of Redis' error replies; SQLSTATE
 * codes of PostgreSQL and codes of its driver; the names of AMQP reply codes, and texts of amqplib that has no codes.
 */
const TABLE = `
ECONNREFUSED | no process listens there | Start it, or set the right address.
ENOTFOUND | there is no such host | Set the right address.
EAI_AGAIN | the host name cannot be resolved now | Check that the name server is running.
EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, EADDRNOTAVAIL | the network cannot reach it | Set the right address, or fix the network.
ECONNRESET, ECONNABORTED, EPIPE, UND_ERR_SOCKET, CONNECTION_CLOSED, CONNECTION_ENDED, CONNECTION_DESTROYED, ended the connection | ends the connection | Check that it is the right server, and whether it needs TLS. Its log has the reason.
ETIMEDOUT, CONNECT_TIMEOUT, UND_ERR_CONNECT_TIMEOUT, UND_ERR_HEADERS_TIMEOUT, UND_ERR_BODY_TIMEOUT, TimeoutError, DeadlinePassed, 57014, does not respond | does not respond in time | Check that the server is running and that no firewall blocks the connection.
HPE_INVALID_CONSTANT, HPE_INVALID_VERSION | does not speak HTTP | Set the right address and port.
EPROTO, ERR_SSL_WRONG_VERSION_NUMBER | does not speak TLS there | Use the TLS port, or an address without TLS.
EMFILE | this machine has too many open files | Raise the limit of open files (ulimit -n).
ERR_TLS_CERT_ALTNAME_INVALID | presents a certificate for another host name | Use a name that the certificate contains.
DEPTH_ZERO_SELF_SIGNED_CERT, SELF_SIGNED_CERT_IN_CHAIN, UNABLE_TO_VERIFY_LEAF_SIGNATURE, UNABLE_TO_GET_ISSUER_CERT_LOCALLY | presents a certificate that is not trusted here | Set NODE_EXTRA_CA_CERTS to the certificate of its authority.
CERT_HAS_EXPIRED | presents a certificate that has expired | Renew it.
CERT_NOT_YET_VALID | presents a certificate that is not valid yet | Check the clocks.
WRONGPASS, SASL_SIGNATURE_MISMATCH | rejects the user or the password | Set the correct user and password.
NOAUTH | needs a password | Set it in the address.
NOPERM | denies this user a needed permission | Allow it +info, +time and +config|get.
DENIED | accepts connections from its own machine only | Set a password there.
LOADING | is starting up | Wait until it has loaded its data.
BUSY | is busy with a script | Wait, or end the script: SCRIPT KILL.
MISCONF | cannot save to its disk | Check the disk, and the log of Redis.
OOM | has reached maxmemory | Raise maxmemory, or delete data that is not needed.
READONLY | is a replica | Point the address at the primary.
MASTERDOWN | is a replica that has lost its primary | Point the address at the primary.
NOREPLICAS | has too few replicas and rejects writes | Start the replicas.
CLUSTERDOWN, MOVED, ASK, CROSSSLOT | is a node of Redis Cluster, which is not supported | Use Sentinel or a single primary.
25006 | is read-only | Point the address at the primary.
28000 | does not allow this user, host or encryption | Correct pg_hba.conf, the role, or sslmode in the address.
42501 | denies this user a needed permission | Make it the owner of the database.
42703, 42P01 | lacks the tables of this version | Start a coordinator, which migrates the database.
42704 | does not know a parameter of the address | Remove this parameter.
53100 | has a full disk | Free space on its disk.
53200 | is out of memory | Give it more memory, or end other sessions.
53300 | has no free connection | Raise max_connections, or end other connections.
55000 | has a database that accepts no connections | Use another one, or allow them.
58030 | cannot read or write its files | Check its disk, and its log.
28P01 | has another password for this user, or no such user | Set the correct user and password.
3D000 | has no such database | Create it, or set the right name.
57P01, CONNECTION-FORCED | is shutting down or was stopped | Start it, or wait for its restart.
57P02 | has crashed and is recovering | Wait. Its log has the reason.
57P03 | is starting up or shutting down | Wait.
08P01 | rejects a parameter of the address, or a connection pooler does | Remove the parameters that it does not know.
XX001 | has damaged data | Restore a backup (docs/backup.md).
XX002 | has a damaged index | Run REINDEX DATABASE, and check the disk.
NOT_WRITABLE | is a standby (read-only) | Add the primary to the address, or promote one.
TLS_NOT_OFFERED | does not offer TLS | Set ssl = on there, or another sslmode in the address.
ACCESS-REFUSED | rejects the user, the password, or the virtual host | Set the correct ones. RabbitMQ accepts guest from its own machine only.
NOT-ALLOWED | has no such virtual host, or denies it to this user | Set the correct virtual host.
INTERNAL-ERROR | has failed | See the log of RabbitMQ.
RESOURCE-ERROR | is out of memory or disk | Free them; doctor shows the alarms of the nodes.
FRAME-ERROR | does not speak AMQP 0-9-1 there | Set the right port: 5672, or 5671 with TLS.
ended the handshake | ends the connection before it is open | Check the port, and whether it needs TLS. The log of RabbitMQ has the reason.
`

/** The meaning of each error code, and its remedy. */
export const meanings: ReadonlyMap<string, readonly [found: string, remedy: string]> = new Map(
  TABLE.trim()
    .split('\n')
    .flatMap((line) => {
      const [codes = '', found = '', remedy = ''] = line.split(' | ')
      return codes.split(', ').map((code) => [code, [found, remedy]] as const)
    }),
)
