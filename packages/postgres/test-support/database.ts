import { randomBytes } from 'node:crypto'
import postgres from 'postgres'

export interface TestDatabase extends AsyncDisposable {
  readonly url: string
  readonly sql: postgres.Sql
}

/** An empty database for one test. It is dropped when the test ends. */
export async function createDatabase(): Promise<TestDatabase> {
  const name = `t${randomBytes(6).toString('hex')}`
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
      await admin`drop database ${admin(name)} with (force)`
      await admin.end()
    },
  }
}
