import { startMessagesContract } from './start-messages.contract.ts'

startMessagesContract('embedded')
