/** A viewer sees the state of the installation. An operator may also act on it. */
export const roles = ['viewer', 'operator'] as const
export type Role = (typeof roles)[number]
