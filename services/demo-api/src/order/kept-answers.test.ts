import { describe, expect, it } from 'vitest'
import { createKeptAnswers } from './kept-answers.ts'

describe('kept answers', () => {
  it('are bounded: the oldest key is forgotten first', () => {
    const kept = createKeptAnswers(2)
    let made = 0
    const answer = (key: string) => kept.answer(key, 'request', () => ++made).answer
    expect([answer('a'), answer('b'), answer('c')]).toEqual([1, 2, 3])
    expect([answer('c'), answer('b')]).toEqual([3, 2])
    expect(answer('a')).toBe(4)
    expect(answer('c')).toBe(3)
    expect(answer('b')).toBe(5)
  })

  it('are not kept for calls without a key', () => {
    const kept = createKeptAnswers(2)
    let made = 0
    const call = () => kept.answer(undefined, 'request', () => ++made)
    expect([call().answer, call().answer]).toEqual([1, 2])
    expect(call().isRepeated).toBe(false)
  })
})
