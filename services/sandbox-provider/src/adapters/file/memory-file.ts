import { readFileSync } from 'node:fs'
import { deserialize, serialize } from 'node:v8'
import { writeFileAtomic } from '@integration-host/shared/files/write-file-atomic'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { emptyMemory, type SandboxMemory } from '../../memory.ts'

/** The provider's memory, stored in a file so that companies stay connected over a restart. Disposing writes the file. */
export interface MemoryFile extends AsyncDisposable {
  readonly memory: SandboxMemory
  /** Schedules a write of the memory to the file within 100 ms. Changes within that time share one write. */
  changed(): void
}

const FORMAT = 'integration-host sandbox 1'
const WRITE_DELAY_MS = 100

/** Returns a memory without a file, which is lost when the process ends. */
export const volatileMemory = (): MemoryFile => ({
  memory: emptyMemory(),
  changed() {},
  async [Symbol.asyncDispose]() {},
})

/** Reads the memory from a file, or starts with an empty one. @throws {StartupError} the file is not a memory file; it is not changed. */
export function openMemoryFile(path: string): MemoryFile {
  const memory = read(path)
  let timer: NodeJS.Timeout | null = null
  // Writes run one after the other, because they use the same temporary file.
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
    // V8's serialisation format restores Maps, and keeps a grant one object if several Maps refer to it. JSON does neither.
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
