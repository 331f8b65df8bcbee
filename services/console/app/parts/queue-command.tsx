import { useQuery } from '@tanstack/react-query'
import type { ProcessesView } from '../../src/contracts/processes.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { call } from '../api.ts'
import { DEMO_PROCESS, queueCommand } from '../shell-text.ts'
import { Outside } from './text.tsx'

/** The command that queues a first transaction, to a process of this installation. */
export function QueueCommand({ session }: { readonly session: SessionView }) {
  const processes = useQuery({
    queryKey: ['processes'],
    queryFn: () => call<ProcessesView>('GET', '/processes'),
  })
  const names = (processes.data?.Processes ?? [])
    .filter(({ BuiltIn }) => !BuiltIn)
    .map(({ Process }) => Process)
  const name = names.find((each) => each === DEMO_PROCESS) ?? names[0] ?? DEMO_PROCESS
  return (
    <code>
      <Outside text={queueCommand(session.CommandLine, name)} />
    </code>
  )
}
