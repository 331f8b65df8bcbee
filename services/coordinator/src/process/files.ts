/** The port through which steps write files. */
export interface Files {
  /**
   * Writes a file atomically: a reader sees either the old or the new content, also after a power failure. The
   * folder is created if it is missing.
   *
   * @throws an error with the operating system's `code` if the file could not be written durably. After an error
   * the file is unchanged, with one exception: if its folder could not be flushed, or the writing thread was lost
   * (`EIO`), the file may have either content.
   */
  writeAtomic(path: string, content: string): Promise<void>
  /**
   * Removes the temporary files that killed writers of this path have left behind. The method reads the whole folder,
   * so call it only in a repeated attempt. If another writer is still writing a temporary file for this path, its write
   * fails and the file at the path stays unchanged.
   */
  removeTemporaryFiles(path: string): Promise<void>
}
