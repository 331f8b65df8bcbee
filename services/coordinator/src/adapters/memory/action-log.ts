import type { Action, ActionFilter } from '../../transaction/action.ts'

export interface ActionLog {
  /** Returns the entry with its `ID`, which is larger than every earlier one. Does not add the entry. */
  next(entry: Omit<Action, 'ID'>): Action
  add(action: Action): void
  /** Removes an entry that could not be written to the disk. */
  remove(action: Action): void
  all(): readonly Action[]
  /** Returns entries, newest first. */
  list(filter: ActionFilter): Action[]
}

/** The action log of the memory source. */
export function createActionLog(): ActionLog {
  const actions: Action[] = []
  let lastId = 0
  return {
    next(entry) {
      lastId += 1
      return { ID: lastId, ...entry }
    },
    add(action) {
      lastId = Math.max(lastId, action.ID)
      actions.push(action)
    },
    remove(action) {
      const index = actions.lastIndexOf(action)
      if (index !== -1) actions.splice(index, 1)
    },
    all: () => actions,
    list({ process, transactionId, before = Infinity, limit }) {
      const found: Action[] = []
      for (let index = actions.length - 1; index >= 0 && found.length < limit; index -= 1) {
        const action = actions[index]
        if (
          action !== undefined &&
          action.ID < before &&
          (process === undefined || action.Process === process) &&
          (transactionId === undefined || action.TransactionID === transactionId)
        )
          found.push(action)
      }
      return found
    },
  }
}
