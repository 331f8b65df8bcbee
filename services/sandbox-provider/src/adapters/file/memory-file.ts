import { readFileSync } from 'node:fs'
import { deserialize, serialize } from 'node:v8'
import { writeFileAtomic } from '@integration-host/shared/files/durable-file'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { emptyMemory, type SandboxMemory } from '../../memory.ts'

/** The provider's state in a file, so that companies stay connected across a restart. Disposing writes the file. */
export interface MemoryFile extends AsyncDisposable {
  readonly memory: SandboxMemory
  /** Schedules a write of the state to the file within 100 ms. All changes within this time share one write. */
  changed(): void
}

const FORMAT = 'integration-host sandbox 1'
const WRITE_DELAY_MS = 100

/** Returns a state that is held in memory only and is lost when the sandbox provider exits. */
export const volatileMemory = (): MemoryFile => ({
  memory: emptyMemory(),
  changed() {},
  async [Symbol.asyncDispose]() {},
})

/**
 * Reads the state from the file, or starts with an empty state if the file does not exist.
 *
 * @throws {StartupError} the file does not contain a stored state; the file is left unchanged.
 */
export function openMemoryFile(path: string): MemoryFile {
  const memory = read(path)
  let timer: NodeJS.Timeout | null = null
  // Writes run one after the other, because all of them use the same temporary file.
  let written = Promise.resolve()
  const write = (): Promise<void> => {
    timer = null
    const content = serialize({ format: FORMAT, memory })
    written = written.then(() => writeFileAtomic(path, content))
    return written
  }
  return {
    memory,
    changed: () => void (timer ??= setTimeout(() => void write(), WRITE_DELAY_MS)),
    async [Symbol.asyncDispose]() {
      if (timer === null) return written
      clearTimeout(timer)
      return write()
    },
  }
}

function read(path: string): SandboxMemory {
  try {
    // The file uses V8's serialization format instead of JSON, because V8's format restores Maps and shared objects. If
    // several Maps referred to the same grant object, they refer to one object again after the state was read.
    const { format, memory } = deserialize(readFileSync(path)) as {
      format: unknown
      memory: SandboxMemory
    }
    if (format === FORMAT) return memory
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return emptyMemory()
  }
  throw new StartupError(
    `${path} is damaged and was not changed: move it away to start with an empty sandbox`,
  )
}
