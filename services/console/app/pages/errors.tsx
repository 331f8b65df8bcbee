import text from '../../../../docs/errors.md'
import { Manual } from '../parts/manual.tsx'

export default function ErrorsPage() {
  return <Manual file="errors.md" text={text} />
}
