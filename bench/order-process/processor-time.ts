import { readdirSync, readFileSync } from 'node:fs'

const CLOCK_TICKS_PER_SECOND = 100

interface Used {
  readonly parent: number
  /** The processor time of a process, plus the time of its exited children for which it has called wait(2). */
  readonly seconds: number
}

/**
 * The processor time used so far by some processes with all their descendants, and by the whole machine. The
 * difference between two readings is the time used between the readings.
 */
export interface ProcessorTime {
  readonly seconds: Readonly<Record<string, number>>
  readonly machineSeconds: number
}

/**
 * Reads the processor time used so far.
 *
 * @param roots process ids by name; the time of all descendants is added to the time of their root
 */
export function processorTime(roots: Readonly<Record<string, number>>): ProcessorTime {
  const all = readProcesses()
  return {
    seconds: Object.fromEntries(
      Object.entries(roots).map(([name, root]) => [name, treeSeconds(all, root)]),
    ),
    machineSeconds: machineSeconds(),
  }
}

function readProcesses(): ReadonlyMap<number, Used> {
  const all = new Map<number, Used>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    let stat: string
    try {
      stat = readFileSync(`/proc/${name}/stat`, 'latin1')
    } catch {
      continue // the process has exited since it was listed
    }
    // The second field of `/proc/<pid>/stat` is the program name, which is in parentheses and may contain spaces.
    // Therefore the line is split only after the closing parenthesis, where field 3 starts.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const ticks = [11, 12, 13, 14].reduce((sum, index) => sum + Number(fields[index]), 0)
    all.set(Number(name), { parent: Number(fields[1]), seconds: ticks / CLOCK_TICKS_PER_SECOND })
  }
  return all
}

function treeSeconds(all: ReadonlyMap<number, Used>, root: number): number {
  let seconds = all.get(root)?.seconds ?? 0
  for (const [pid, { parent }] of all) if (parent === root) seconds += treeSeconds(all, pid)
  return seconds
}

function machineSeconds(): number {
  const stat = readFileSync('/proc/stat', 'latin1')
  const [user = 0, nice = 0, system = 0, , , irq = 0, softIrq = 0] = stat
    .slice(stat.indexOf('cpu ') + 4, stat.indexOf('\n'))
    .trim()
    .split(' ')
    .map(Number)
  return (user + nice + system + irq + softIrq) / CLOCK_TICKS_PER_SECOND
}
