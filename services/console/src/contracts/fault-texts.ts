/**
 * What the class of a fault means, if its name alone would mislead: used_elsewhere names only one of two possible causes.
 * The program of the browser repeats the words, as it does for the states of companies (company-states.ts).
 */
export const faultTexts = {
  used_elsewhere: 'disconnected by its owner, or used by another program',
} as const

export type FaultTexts = typeof faultTexts
