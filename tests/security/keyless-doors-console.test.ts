import { keylessDoors } from '../support/doors/keyless.ts'

keylessDoors(['console'])
