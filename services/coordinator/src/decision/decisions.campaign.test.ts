import { decisionsContract } from './decisions.contract.ts'

decisionsContract('embedded')
