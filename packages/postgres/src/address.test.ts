import { describe, expect, it } from 'vitest'
import { ConfigError, parseConfig } from '@integration-host/shared/process/config'
import { z } from 'zod'
import { parsePostgresUrl, postgresUrl } from './address.ts'

describe('parsing DATABASE_URL', () => {
  it('parsing a PostgreSQL URL returns all its hosts and ports, and decodes user, password and database', () => {
    expect(
      parsePostgresUrl('postgres://us%40er:p%2F:+w@a.example:5433,b,[::1]:5434/d%20b'),
    ).toMatchObject({
      servers: [
        { host: 'a.example', port: 5433 },
        { host: 'b', port: 5432 },
        { host: '::1', port: 5434 },
      ],
      user: 'us@er',
      password: 'p/:+w',
      database: 'd b',
    })
  })

  it('a PostgreSQL URL requires a server that accepts writes unless target_session_attrs is any', () => {
    const needsWrites = (query: string) => parsePostgresUrl(`postgres://h/d${query}`).needsWrites
    expect(needsWrites('')).toBe(true)
    expect(needsWrites('?target_session_attrs=read-write')).toBe(true)
    expect(needsWrites('?target_session_attrs=primary')).toBe(true)
    expect(needsWrites('?target_session_attrs=any')).toBe(false)
  })

  it('ssl=true in a PostgreSQL URL means sslmode=require, as in libpq', () => {
    const mode = (query: string) => parsePostgresUrl(`postgres://h/d${query}`).sslMode
    expect(mode('')).toBeNull()
    expect(mode('?sslmode=verify-full')).toBe('verify-full')
    expect(mode('?ssl=true')).toBe('require')
  })

  it('unknown parameters of a PostgreSQL URL become session settings, except application_name and options', () => {
    expect(
      parsePostgresUrl(
        'postgres://h/d?application_name=a&options=-c%20x.y%3D1&search_path=s,public',
      ),
    ).toMatchObject({
      startup: { application_name: 'a', options: '-c x.y=1' },
      session: { search_path: 's,public' },
    })
  })
})

describe('the setting DATABASE_URL', () => {
  const schema = z.object({ DATABASE_URL: postgresUrl() })

  it.each([
    ['mysql://h/d', 'must begin with postgresql'],
    ['postgres://user:s3cret@h:0/d', 'port that is not 1 to 65535'],
    ['postgres://user:s3cret@a,,b/d', 'empty host'],
    ['postgres://user:s3cret@a,A/d', 'names a server twice'],
    ['postgres://user:s3%cret@h/d', 'malformed percent-encoding'],
    ['postgres://user:s3cret@h/d?sslmode=on', 'sslmode that is not disable, allow'],
    ['postgres://user:s3cret@h/d?sslrootcert=system&sslmode=require', 'too weak'],
    [
      'postgres://user:s3cret@h/d?sslrootcert=/nowhere/ca.pem',
      'sslrootcert: the file cannot be read',
    ],
    ['postgres://user:s3cret@h/d?sslcert=/nowhere/c.pem', 'sslcert: the file cannot be read'],
    ['postgres://user:s3cret@h/d?target_session_attrs=standby', 'target_session_attrs'],
    ['postgres://user:s3cret@h/d?connect_timeout=0', 'connect_timeout that is not 2 to 60'],
    [
      'postgres://user:s3cret@h/d?channel_binding=require',
      'channel_binding, which is not supported',
    ],
    ['postgres://h/d?user=u&password=s3cret', 'user, which is not supported'],
    ['postgres://user:s3cret@h/d?se%27t=1', 'not the name of a setting'],
  ])(
    'the PostgreSQL URL %s is rejected with a message that contains no part of the URL: %s',
    (url, message) => {
      const read = (): unknown => parseConfig(schema, { DATABASE_URL: url })
      expect(read).toThrow(ConfigError)
      expect(read).toThrow(message)
      expect(read).not.toThrow(/s3cret|nowhere/)
    },
  )
})
