import { keylessDoors } from '../support/doors/keyless.ts'

keylessDoors(['token-service', 'accounting-gateway', 'coordinator'])
