import { changeWaitsContract } from './change-waits.contract.ts'
import { changesContract } from './changes.contract.ts'

changesContract('embedded')
changeWaitsContract('embedded')
