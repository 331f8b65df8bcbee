import { execFile } from 'node:child_process'
import { expect, it } from 'vitest'

/** Runs `npm run bench -- <args>`, and resolves with the exit code and the output. */
const bench = (...args: string[]): Promise<{ code: number; out: string; err: string }> =>
  new Promise((resolve) => {
    const script = new URL('bench.ts', import.meta.url).pathname
    execFile(process.execPath, [script, ...args], (error, out, err) =>
      resolve({ code: Number(error?.code ?? 0), out, err }),
    )
  })

it('npm run bench without a name lists each benchmark with a description', async () => {
  const { code, out } = await bench()
  expect(code).toBe(0)
  expect(out).toMatch(/^ {2}proxy +Compares the cost of the accounting gateway/m)
})

it('npm run bench rejects an unknown name, and lists the benchmarks', async () => {
  const { code, out, err } = await bench('nothing')
  expect(code).toBe(1)
  expect(err).toContain('There is no benchmark nothing.')
  expect(out).toContain('  proxy')
})

it('npm run bench -- <name> --help prints the options of that benchmark', async () => {
  const { code, out } = await bench('proxy', '--help')
  expect(code).toBe(0)
  expect(out).toContain('`--post 1024`')
})
