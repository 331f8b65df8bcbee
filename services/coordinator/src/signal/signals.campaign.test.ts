import { signalsContract } from './signals.contract.ts'

signalsContract('embedded')
