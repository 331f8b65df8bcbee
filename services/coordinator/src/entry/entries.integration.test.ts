import { entriesContract } from './entries.contract.ts'

entriesContract('real')
