import type { Fault } from '@integration-host/shared/contracts/credential'
import { counted, plain } from './terminal.ts'

/** Returns the lines that describe a fault: the reason, the trace id for the provider's support, and the remedy. */
export const faultLines = (fault: Fault): string[] =>
  labelledLines([
    [
      'Fault',
      `${fault.Code}, since ${fault.Since ?? fault.At}, after ${counted(fault.Attempts, 'attempt')}`,
    ],
    ['Message', fault.Message],
    ['Trace id', fault.TraceId],
    ['Next try', fault.NextTryAt],
    ['Remedy', fault.Remedy],
  ])

/** Returns a line with a label and its value for each pair that has a value. */
export const labelledLines = (
  pairs: readonly (readonly [label: string, text: string | null | undefined])[],
): string[] => pairs.flatMap(([label, text]) => (text ? [`${label.padEnd(13)}${plain(text)}`] : []))
