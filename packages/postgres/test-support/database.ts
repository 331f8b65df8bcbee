import { randomBytes } from 'node:crypto'
import postgres from 'postgres'

export interface TestDatabase extends AsyncDisposable {
  readonly url: string
  readonly sql: postgres.Sql
}

/** An empty database, which is dropped when it is disposed, or else at the end of the run of tests. */
export async function createDatabase(): Promise<TestDatabase> {
  const name = `t${process.env['TEST_RUN'] ?? ''}${randomBytes(6).toString('hex')}`
  const server = process.env['TEST_DATABASE_URL'] ?? ''
  const admin = postgres(server, { max: 1, onnotice: () => {} })
  await admin`create database ${admin(name)}`
  const url = new URL(server)
  url.pathname = `/${name}`
  const sql = postgres(url.href, { max: 2, onnotice: () => {} })
  return {
    url: url.href,
    sql,
    async [Symbol.asyncDispose]() {
      await sql.end({ timeout: 1 })
      await admin`drop database if exists ${admin(name)} with (force)`
      await admin.end()
    },
  }
}
