import { createLogger } from '../../observability/logger.ts'
import { messageBusContract } from '../message-bus.contract.ts'
import { createInProcessBus } from './message-bus.ts'

messageBusContract('the in-process bus', async () =>
  createInProcessBus(createLogger('test', 'silent')),
)
