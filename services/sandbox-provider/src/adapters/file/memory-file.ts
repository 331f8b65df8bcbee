import { readFileSync } from 'node:fs'
import { deserialize, serialize } from 'node:v8'
import { writeFileAtomic } from '@integration-host/shared/files/write-file-atomic'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { emptyMemory, type SandboxMemory } from '../../memory.ts'

/** The provider's memory, kept in a file so that companies stay connected over a restart. Disposing writes it. */
export interface MemoryFile extends AsyncDisposable {
  readonly memory: SandboxMemory
  /** Writes the memory to the file within 100 ms; changes that follow each other share a write. */
  changed(): void
}

const FORMAT = 'integration-host sandbox 1'
const WRITE_DELAY_MS = 100

/** Memory that is lost when the process ends. */
export const volatileMemory = (): MemoryFile => ({
  memory: emptyMemory(),
  changed() {},
  async [Symbol.asyncDispose]() {},
})

/** @throws {StartupError} the file was not written by a sandbox provider; it is left as it is. */
export function openMemoryFile(path: string): MemoryFile {
  const memory = read(path)
  let timer: NodeJS.Timeout | null = null
  // One write after the other: two at a time would share the temporary file.
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
    // V8's format restores Maps, and keeps one grant shared where several Maps refer to it; JSON would not.
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
