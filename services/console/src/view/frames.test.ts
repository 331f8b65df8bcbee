import { describe, expect, it } from 'vitest'
import { createFrames } from './frames.ts'

describe('the frames of the event stream', () => {
  it('a browser that was disconnected gets the frames after its last frame, in order', () => {
    const frames = createFrames('boot', () => 0)
    for (const n of [1, 2, 3]) frames.add('now', n)
    expect(frames.since('boot-1')).toEqual([
      'id: boot-2\nevent: now\ndata: 2\n\n',
      'id: boot-3\nevent: now\ndata: 3\n\n',
    ])
    expect(frames.since('boot-3')).toEqual([])
  })

  it('a new browser gets the id of the newest frame, so that it misses no frame when it reconnects', () => {
    const frames = createFrames('boot', () => 0)
    frames.add('now', 1)
    expect(frames.since(null)).toEqual(['id: boot-1\nevent: current\ndata: {}\n\n'])
  })

  it.each(['other-1', 'boot-9', 'boot-x', '', 'boot-1\nid: 2'])(
    'a browser gets the event `reset` if the console does not have the frame with the last id of the browser: %j',
    (lastId) => {
      const frames = createFrames('boot', () => 0)
      frames.add('now', 1)
      expect(frames.since(lastId)).toEqual(['id: boot-1\nevent: reset\ndata: {"Reason":"gap"}\n\n'])
    },
  )

  it('the event stream drops its frames after five minutes', () => {
    let now = 0
    const frames = createFrames('boot', () => now)
    frames.add('now', 1)
    now = 300_001
    frames.add('now', 2)
    expect(frames.since('boot-0')[0]).toContain('event: reset')
    expect(frames.since('boot-1')).toHaveLength(1)
  })
})
