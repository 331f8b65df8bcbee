import { entryEventsContract } from './entry-events.contract.ts'

entryEventsContract('embedded')
