import { entriesContract } from './entries.contract.ts'
import { entryEventsContract } from './entry-events.contract.ts'

entriesContract('real')
entryEventsContract('real')
