import { coordinatorContract } from './service.contract.ts'

coordinatorContract('embedded', 'message')
coordinatorContract('embedded', 'inline')
coordinatorContract('real', 'inline')
