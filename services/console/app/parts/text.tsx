import { visible, visibleLines } from '../visible.ts'

export interface OutsideProps {
  readonly text: string
  /** Whether the text may have several lines. */
  readonly hasLines?: boolean
}

/**
 * Shows text that comes from outside. Such text cannot change the direction of the surrounding text. Characters that
 * cannot be seen are shown as their code points, so that one id cannot look like another.
 */
export function Outside({ text, hasLines = false }: OutsideProps) {
  return <bdi>{hasLines ? visibleLines(text) : visible(text)}</bdi>
}
