import { describe, expect, it } from 'vitest'
import { runKillCommand } from './kill-command.ts'

async function run(command: string, signal = new AbortController().signal) {
  let output = ''
  await runKillCommand(command, {
    env: { ...process.env, CHAOS_ROUND: '3' },
    signal,
    onOutput: (text) => (output += text),
  })
  return output
}

describe('the kill command of a chaos run', () => {
  it('a chaos run executes the kill command in a shell, with the number of the round in the variable CHAOS_ROUND', async () => {
    expect(await run('echo "round $CHAOS_ROUND" | tr a-z A-Z')).toBe('ROUND 3\n')
  })

  it('runKillCommand() rejects if the kill command exits with a code other than 0', async () => {
    await expect(run('echo done; exit 3')).rejects.toThrow('the kill command exited with code 3')
  })

  it('the kill command and the programs that it started are terminated when the chaos run is stopped', async () => {
    const stop = new AbortController()
    const running = runKillCommand('echo started; sleep 600; true', {
      env: process.env,
      signal: stop.signal,
      onOutput: () => stop.abort(),
    })
    await expect(running).rejects.toThrow('the kill command was ended by SIGTERM')
  })
})
