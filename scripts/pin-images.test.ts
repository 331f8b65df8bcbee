import { describe, expect, it } from 'vitest'
import { imagesIn, pinned } from './pin-images.ts'

const digest = (character: string): string => `sha256:${character.repeat(64)}`
const TEXT = `FROM node:24-slim AS dependencies
# FROM is a word in this comment: redis:8
    image: integration-host
    image: redis:8
    image: haproxy:3.0@${digest('a')} # with a digest
`

describe('pinning the base images to digests', () => {
  it('imagesIn lists every image with its digest, except the image that is built from this repository', () => {
    expect(imagesIn(TEXT)).toEqual([
      { image: 'node:24-slim', digest: null },
      { image: 'redis:8', digest: null },
      { image: 'haproxy:3.0', digest: digest('a') },
    ])
  })

  it('pinned adds a missing digest, replaces an existing one, and changes nothing else', () => {
    const newest: Readonly<Record<string, string>> = {
      'node:24-slim': digest('b'),
      'redis:8': digest('c'),
      'haproxy:3.0': digest('d'),
    }
    expect(pinned(TEXT, (image) => newest[image] ?? ''))
      .toBe(`FROM node:24-slim@${digest('b')} AS dependencies
# FROM is a word in this comment: redis:8
    image: integration-host
    image: redis:8@${digest('c')}
    image: haproxy:3.0@${digest('d')} # with a digest
`)
  })
})
