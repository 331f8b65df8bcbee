import { decisionsContract } from './decisions.contract.ts'

decisionsContract('real')
