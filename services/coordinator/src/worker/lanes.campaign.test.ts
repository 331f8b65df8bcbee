import { lanesContract } from './lanes.contract.ts'

lanesContract('embedded')
