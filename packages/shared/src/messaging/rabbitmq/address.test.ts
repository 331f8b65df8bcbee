import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { parseConfig } from '../../process/config.ts'
import { amqpUrl, parseAmqpUrl } from './address.ts'

const urlsOf = (text: string): readonly string[] => parseAmqpUrl(text).map(({ url }) => url)

describe('parsing AMQP_URL', () => {
  it('parseAmqpUrl reads the address of a single RabbitMQ node', () => {
    expect(parseAmqpUrl('amqp://user:p%2Fw@host/vhost?heartbeat=5')).toEqual([
      {
        name: 'host:5672',
        url: 'amqp://user:p%2Fw@host:5672/vhost?heartbeat=5',
        usesTls: false,
        hasUser: true,
      },
    ])
  })

  it('parseAmqpUrl gives each listed RabbitMQ node the user, the vhost and the parameters of the URL', () => {
    expect(urlsOf('amqps://u:p,w@a,b:7000,[::1]/v?heartbeat=5')).toEqual([
      'amqps://u:p,w@a:5671/v?heartbeat=5',
      'amqps://u:p,w@b:7000/v?heartbeat=5',
      'amqps://u:p,w@[::1]:5671/v?heartbeat=5',
    ])
  })

  it('parseAmqpUrl reads a list of complete URLs', () => {
    expect(urlsOf('amqp://u:p@a/v,amqp://u:q@b:7000/v')).toEqual([
      'amqp://u:p@a:5672/v',
      'amqp://u:q@b:7000/v',
    ])
  })

  it.each([
    ['hush', 'is not a URL'],
    ['http://u:hush@a', 'must begin with amqp or amqps'],
    ['amqp://u:hush@', 'has an empty host'],
    ['amqp://u:hush@a,', 'has an empty host'],
    ['amqp://u:hush@a,a:5672', 'names a server twice'],
    ['amqp://u:hush@a/v,amqp://u:hush@a:5672/v', 'names a server twice'],
    ['amqp://u:hush@a/v,amqps://u:hush@b/v', 'lists servers with TLS and without TLS'],
    ['amqp://u:hush@a:70000', 'has a port that is not 1 to 65535'],
    ['amqp://u:hush@a b', 'has a host that is not a name'],
  ])('the AMQP URL %s is rejected, because it %s', (AMQP_URL, problem) => {
    const read = () => parseConfig(z.object({ AMQP_URL: amqpUrl() }), { AMQP_URL })
    expect(read).toThrow(`  AMQP_URL: ${problem}`)
    expect(read).not.toThrow(/hush/)
  })
})
