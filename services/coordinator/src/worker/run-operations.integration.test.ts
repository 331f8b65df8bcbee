import { operationRunnerContract } from './run-operations.contract.ts'

operationRunnerContract('real')
