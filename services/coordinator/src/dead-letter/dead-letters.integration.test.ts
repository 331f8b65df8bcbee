import { deadLettersContract } from './dead-letters.contract.ts'

deadLettersContract('real')
