import type { ReactNode } from 'react'

export interface FieldNameProps {
  /** Whether the person must fill the field in. A required field also has the attribute `required`. */
  readonly need: 'required' | 'optional'
  readonly children: ReactNode
}

/**
 * The name of a field that may be empty when it is shown, with a text that says whether the field must be filled in. A
 * field that always has a value, such as a list of choices, needs no such text.
 */
export function FieldName({ need, children }: FieldNameProps) {
  return (
    <span>
      {children} <span className="muted">({need})</span>
    </span>
  )
}
