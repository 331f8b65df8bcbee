import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs'
import { deserialize, serialize } from 'node:v8'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { emptyMemory, type SandboxMemory } from '../../memory.ts'

/** The provider's memory, kept in a file so that companies stay connected over a restart. */
export interface MemoryFile extends Disposable {
  readonly memory: SandboxMemory
  /** Writes what the memory holds, soon. */
  changed(): void
}

const FORMAT = 'integration-host sandbox 1'
const SOON_MS = 100

/** Memory that ends with the process. */
export const forgetful = (): MemoryFile => ({
  memory: emptyMemory(),
  changed() {},
  [Symbol.dispose]() {},
})

/** @throws {StartupError} the file is not one of ours; it is left as it is. */
export function openMemoryFile(path: string): MemoryFile {
  const memory = read(path)
  let timer: NodeJS.Timeout | null = null
  const write = (): void => {
    timer = null
    const file = openSync(`${path}.new`, 'w', 0o600)
    writeSync(file, serialize({ format: FORMAT, memory }))
    fsyncSync(file)
    closeSync(file)
    renameSync(`${path}.new`, path)
  }
  return {
    memory,
    changed: () => void (timer ??= setTimeout(write, SOON_MS)),
    [Symbol.dispose]() {
      if (timer === null) return
      clearTimeout(timer)
      write()
    },
  }
}

function read(path: string): SandboxMemory {
  try {
    // Maps, and grants that several of them share, come back as they were.
    const { format, memory } = deserialize(readFileSync(path)) as {
      format: unknown
      memory: SandboxMemory
    }
    if (format === FORMAT) return memory
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return emptyMemory()
  }
  throw new StartupError(
    `${path} is damaged and was left as it is: move it away to start with an empty sandbox`,
  )
}
