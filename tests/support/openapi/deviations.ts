/** Prefix of the line that a service process prints for each response that deviates from the OpenAPI document. */
export const DEVIATION = 'not as documented: '

/** Deviations that were found in this process since the previous test ended. */
export const deviations: string[] = []
