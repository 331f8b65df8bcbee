import { companyPausesContract } from './company-pauses.contract.ts'
import { pausedWorkContract } from './paused-work.contract.ts'

companyPausesContract('embedded')
pausedWorkContract('embedded')
