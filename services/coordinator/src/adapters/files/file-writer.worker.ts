/**
 * The thread that `createThreadedFiles` starts. It receives each batch of files as one message and returns the
 * results of the batch as one message.
 */
import { parentPort } from 'node:worker_threads'
import { type FileToWrite, writeFiles } from './file-writer.ts'

parentPort?.on('message', (files: readonly FileToWrite[]) => {
  void writeFiles(files).then((results) => parentPort?.postMessage(results))
})
