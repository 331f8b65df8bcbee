import { readdirSync, readFileSync } from 'node:fs'

const CLOCK_TICKS_PER_SECOND = 100

/** Returns the resident memory of a process in MiB. */
export const residentMb = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1_024

/**
 * Returns the processor time, in seconds, that all threads of a process have used since its start, in user and
 * kernel mode.
 */
export function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  // The line is split after the closing parenthesis, because the program name in parentheses may contain spaces. The
  // fields 14 (utime) and 15 (stime) of the whole line then have the indexes 11 and 12.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS_PER_SECOND
}

/** Returns the processor time, in milliseconds, that all threads of a process have used since its start. */
export const processorMs = (pid: number): number =>
  readdirSync(`/proc/${pid}/task`)
    .map((task) =>
      Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]),
    )
    .reduce((sum, nanoseconds) => sum + nanoseconds / 1_000_000, 0)
