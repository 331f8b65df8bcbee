import type { Fault } from '@integration-host/shared/contracts/credential'
import { counted, plain } from './terminal.ts'

/** Returns the lines that describe a fault: the reason, the trace id for the provider's support, and the remedy. */
export const faultLines = (fault: Fault): string[] =>
  [
    [
      'Fault',
      `${fault.Code}, since ${fault.Since ?? fault.At}, after ${counted(fault.Attempts, 'attempt')}`,
    ],
    ['Message', fault.Message],
    ...(fault.TraceId === undefined ? [] : [['Trace id', fault.TraceId]]),
    ...(fault.NextTryAt === undefined ? [] : [['Next try', fault.NextTryAt]]),
    ...(fault.Remedy === undefined ? [] : [['Remedy', fault.Remedy]]),
  ].map(([label = '', text = '']) => labelled(label, text))

/** Returns a line with a label and its value. */
export const labelled = (label: string, text: string): string => `${label.padEnd(13)}${plain(text)}`
