/** A viewer sees the state of the installation. An operator may also act on it. */
export const roles = ['viewer', 'operator'] as const
export type Role = (typeof roles)[number]

/** Returns whether a person with the role `role` may use what `needed` may use. */
export const allows = (role: Role, needed: Role): boolean =>
  roles.indexOf(role) >= roles.indexOf(needed)
