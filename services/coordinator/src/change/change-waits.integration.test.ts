import { changeWaitsContract } from './change-waits.contract.ts'

changeWaitsContract('real')
