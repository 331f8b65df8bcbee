import { keylessDoors } from '../support/doors/keyless.ts'

keylessDoors(['demo-api', 'sandbox-provider', 'webhook-receiver'])
