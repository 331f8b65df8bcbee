/** Begins the line that a process of its own writes for an answer that is not as documented. */
export const DEVIATION = 'not as documented: '

/** What was seen in this process and not yet told to a test. */
export const deviations: string[] = []
