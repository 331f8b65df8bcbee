import { operationRunnerContract } from './run-operations.contract.ts'

operationRunnerContract('embedded')
