/** The port through which steps write files. */
export interface Files {
  /**
   * Writes a file atomically: a reader sees the old content or the new, also after a power failure. The folder
   * is created if it is missing.
   *
   * @throws an error with the system's `code`. The file is then unchanged, unless its folder could not be
   * flushed or the writing thread was lost (`EIO`): then it may hold either content.
   */
  writeAtomic(path: string, content: string): Promise<void>
  /**
   * Removes the temporary files that killed writers of this path left behind. It reads the whole folder, so
   * call it for a repeated attempt only. A writer that is still alive fails, and leaves the file unchanged.
   */
  removeTemporaryFiles(path: string): Promise<void>
}
