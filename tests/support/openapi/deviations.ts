/** Prefix of the line that a service process writes for each response that deviates from its document. */
export const DEVIATION = 'not as documented: '

/** Deviations seen in this process since the last test ended. */
export const deviations: string[] = []
