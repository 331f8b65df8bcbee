import { familiesContract } from './families.contract.ts'

familiesContract('embedded')
