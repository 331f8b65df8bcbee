import { defineConfig } from 'drizzle-kit'

/** `drizzle-kit generate` in this folder turns a changed schema into the next SQL migration. */
export default defineConfig({
  dialect: 'postgresql',
  schema: './src/adapters/postgres/schema/*.ts',
  out: './migrations',
})
