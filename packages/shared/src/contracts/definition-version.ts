import { z } from 'zod'

/** The version of a process definition, as it is stored with a run. */
export const DefinitionVersion = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._+-]{0,31}$/,
    'must have at most 32 letters, digits, ., _, + and -, and begin with a letter or digit',
  )
