import { type Role, roles } from '@integration-host/shared/access/scope'

/** Returns whether the role `role` includes the permissions of `needed`. */
export const allows = (role: Role, needed: Role): boolean =>
  roles.indexOf(role) >= roles.indexOf(needed)
