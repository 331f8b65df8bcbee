import { expect, until } from './check.ts'
import { type Stack, words } from './stack.ts'

/**
 * Checks that the coordinator, with its own account at RabbitMQ, stores a message of `dead.OrderProcess`, and that the
 * command line lists and deletes it.
 */
export async function deadLettersAreStored(stack: Stack): Promise<void> {
  const cli = (args: string): Promise<string> => stack.compose(words(`run --rm -T cli ${args}`))
  await stack.management('POST', 'exchanges/%2F/amq.default/publish', {
    routing_key: 'dead.OrderProcess',
    payload: 'unreadable',
    payload_encoding: 'string',
    properties: {},
  })
  const list = 'dead-letters list --process OrderProcess --json'
  await until('the message is listed', async () =>
    (await cli(list)).includes('"Content":"unreadable"'),
  )
  const deleted = await cli('dead-letters delete --all --process OrderProcess --reason test')
  expect(deleted.includes('1 dead letter deleted.'), `the command printed ${deleted}`)
}
