import { entryEventsContract } from './entry-events.contract.ts'

entryEventsContract('real')
