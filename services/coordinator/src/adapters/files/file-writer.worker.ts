/** The thread that `createThreadedFiles` starts: receives a message of files, sends a message of results. */
import { parentPort } from 'node:worker_threads'
import { type FileToWrite, writeFiles } from './file-writer.ts'

parentPort?.on('message', (files: readonly FileToWrite[]) => {
  void writeFiles(files).then((results) => parentPort?.postMessage(results))
})
