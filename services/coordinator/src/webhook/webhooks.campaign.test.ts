import { webhooksContract } from './webhooks.contract.ts'

webhooksContract('embedded')
