import { companyPausesContract } from './company-pauses.contract.ts'

companyPausesContract('embedded')
