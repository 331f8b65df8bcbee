import { companyPausesContract } from './company-pauses.contract.ts'
import { pausedWorkContract } from './paused-work.contract.ts'

companyPausesContract('real')
pausedWorkContract('real')
