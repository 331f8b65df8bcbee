/**
 * Prints the size of the heap after a collection whenever the process gets SIGUSR2. `node --import` loads this file
 * before the main module of a service.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
let count = 0

process.on('SIGUSR2', () => {
  count += 1
  void print(count)
})

async function print(number: number): Promise<void> {
  // Finalizers and closed sockets release further objects, so the heap is collected several times.
  for (let time = 0; time < 4; time += 1) {
    collect()
    await turn()
  }
  const { heapUsed, external } = process.memoryUsage()
  console.error(`heap ${number} ${heapUsed + external}`)
}
