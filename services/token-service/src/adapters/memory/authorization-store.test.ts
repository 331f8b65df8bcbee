import { authorizationStoreContract } from '../../authorization/authorization-store.contract.ts'
import { createMemoryAuthorizationStore } from './authorization-store.ts'

authorizationStoreContract('memory', async () => createMemoryAuthorizationStore())
