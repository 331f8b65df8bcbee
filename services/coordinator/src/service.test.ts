import { coordinatorContract } from './service.contract.ts'

coordinatorContract('embedded', 'message', 'smoke')
