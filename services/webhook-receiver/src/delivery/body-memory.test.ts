import { describe, expect, it } from 'vitest'
import { createBodyMemory } from './body-memory.ts'

describe('the memory of the bodies in flight', () => {
  /** Creates a memory limit of 100 bytes, and records the names of the bodies that are dropped. */
  function fixture() {
    const memory = createBodyMemory(100)
    const dropped: string[] = []
    const begin = (name: string) => memory.begin(() => void dropped.push(name))
    return { memory, dropped, begin }
  }

  it('if no memory is free for a request body, the incomplete body that has been arriving longest is dropped', () => {
    const { memory, dropped, begin } = fixture()
    const [slow, other, next] = [begin('slow'), begin('other'), begin('next')]
    other.add(30)
    slow.add(60)
    next.add(40)
    expect(dropped).toEqual(['slow'])
    expect(memory.bytes).toBe(70)
  })

  it('if complete request bodies occupy the memory, a new body is rejected, and no complete body is dropped', () => {
    const { memory, dropped, begin } = fixture()
    const complete = begin('complete')
    complete.add(90)
    complete.complete()
    const next = begin('next')
    expect(() => next.add(11)).toThrow('too many bodies are in flight')
    next.add(10)
    expect(dropped).toEqual([])
    expect(memory.bytes).toBe(100)
  })

  it('disposing a request body a second time frees no further memory', () => {
    const { memory, begin } = fixture()
    const first = begin('first')
    first.add(100)
    first.complete()
    first[Symbol.dispose]()
    first[Symbol.dispose]()
    expect(memory.bytes).toBe(0)
    begin('second').add(100)
    expect(memory.bytes).toBe(100)
  })

  it('further bytes of a request body that was dropped are rejected', () => {
    const { memory, begin } = fixture()
    const slow = begin('slow')
    slow.add(50)
    begin('next').add(100)
    expect(memory.bytes).toBe(100)
    expect(() => slow.add(1)).toThrow('too many bodies are in flight')
    expect(memory.bytes).toBe(100)
  })
})
