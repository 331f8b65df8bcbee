/** The port through which steps write files. */
export interface Files {
  /**
   * Writes a file atomically: a reader sees either the old or the new content, also after a power failure. The folder
   * is created if it is missing.
   *
   * @throws an error with the operating system's `code` if the file could not be written durably. After an error the
   *   file usually has the old content. If its folder could not be flushed, or the writing thread was lost (`EIO`), the
   *   file may have the old or the new content.
   */
  writeAtomic(path: string, content: string): Promise<void>
  /**
   * Removes the temporary files that killed writers of this path have left behind. The method reads the whole folder,
   * so it should be called only if an attempt of a step is repeated. If another writer is still writing a temporary
   * file for this path, that write fails, and the file at the path stays unchanged.
   */
  removeTemporaryFiles(path: string): Promise<void>
}
