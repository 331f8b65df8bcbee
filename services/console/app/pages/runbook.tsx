import text from '../../../../docs/runbook.md'
import { Manual } from '../parts/manual.tsx'

export default function RunbookPage() {
  return <Manual file="runbook.md" text={text} />
}
