import { useSyncExternalStore } from 'react'

/** A value outside of the components. */
export interface Store<Value> {
  readonly get: () => Value
  readonly set: (next: Value) => void
  /** Returns what `select` makes of the value. The component is rendered again whenever that changes. */
  readonly use: <Selected>(select: (value: Value) => Selected) => Selected
}

export function createStore<Value>(initial: Value): Store<Value> {
  let value = initial
  const listeners = new Set<() => void>()
  function subscribe(listener: () => void): () => void {
    listeners.add(listener)
    return () => void listeners.delete(listener)
  }
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return
      value = next
      for (const listener of listeners) listener()
    },
    use: (select) => useSyncExternalStore(subscribe, () => select(value)),
  }
}
