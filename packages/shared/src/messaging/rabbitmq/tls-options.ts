import { credentials } from 'amqplib'
import type { TlsFiles } from '../../tls/tls-files.ts'
import type { AmqpNode } from './address.ts'

/**
 * Returns the TLS options. A client certificate also authenticates the user (SASL EXTERNAL) if the URL names no
 * user; RabbitMQ then needs the plugin rabbitmq_auth_mechanism_ssl.
 */
export const tlsOptions = (node: AmqpNode, tls: TlsFiles | undefined) => ({
  ...tls?.read(),
  ...(tls?.hasCertificate && !node.hasUser && { credentials: credentials.external() }),
})
