import { expect, it } from 'vitest'
import { keyName } from './key-name.ts'

it.each([
  ['a4f7a2af', 'SERVICE_API_KEY (a4f7a2af)'],
  ['operator', 'operator'],
  ['ada@example.com', 'ada@example.com'],
  ['', ''],
])('the key %j is named %j', (id, name) => expect(keyName(id)).toBe(name))
