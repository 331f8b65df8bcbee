import { operationRunnerContract } from './run-bulk-operations.contract.ts'

operationRunnerContract('embedded')
