import { changesContract } from './changes.contract.ts'

changesContract('embedded')
