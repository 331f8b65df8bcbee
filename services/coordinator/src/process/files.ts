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
   * Removes the temporary files that killed writers of this path left behind. The method reads the whole
   * folder, so call it for a repeated attempt only. If a writer is still active, its write fails and leaves the
   * file unchanged.
   */
  removeTemporaryFiles(path: string): Promise<void>
}
