import { expect, it } from 'vitest'
import { pinned } from './pin-images.ts'

const digest = (character: string): string => `sha256:${character.repeat(64)}`

it('pin-images adds a missing digest, replaces an existing digest, and changes nothing else', () => {
  const newest: Readonly<Record<string, string>> = {
    'node:24-slim': digest('b'),
    'redis:8': digest('c'),
    'haproxy:3.0': digest('d'),
  }
  const before = `# image: redis:8
        NODE_IMAGE: node:24-slim
    image: redis:8
    image: haproxy:3.0@${digest('a')}
`
  expect(pinned(before, (image) => newest[image] ?? '')).toBe(`# image: redis:8
        NODE_IMAGE: node:24-slim@${digest('b')}
    image: redis:8@${digest('c')}
    image: haproxy:3.0@${digest('d')}
`)
})
