import { type Role, roles } from '@integration-host/shared/access/user-role'

/** Returns whether a person with the role `role` may use what `needed` may use. */
export const allows = (role: Role, needed: Role): boolean =>
  roles.indexOf(role) >= roles.indexOf(needed)
