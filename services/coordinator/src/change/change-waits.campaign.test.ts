import { changeWaitsContract } from './change-waits.contract.ts'

changeWaitsContract('embedded')
