import type { Action, ActionFilter } from '../../run/action.ts'

export interface ActionLog {
  /**
   * Returns a complete entry with a new `ID`, which is larger than all earlier ids. The entry is not added to the log.
   */
  next(entry: Omit<Action, 'ID'>): Action
  add(action: Action): void
  /** Removes an entry that could not be written to the disk. */
  remove(action: Action): void
  all(): readonly Action[]
  /**
   * Returns the entry that the bulk operation has written when it changed this transaction; `undefined` if it has not
   * changed the transaction.
   */
  doneBy(
    operationId: string,
    transaction: { readonly Process: string; readonly TransactionID: string },
  ): Action | undefined
  /** Returns entries, newest first. */
  list(filter: ActionFilter): Action[]
}

/** The action log of the memory source. */
export function createActionLog(): ActionLog {
  const actions: Action[] = []
  /**
   * The entries that bulk operations have written. The map key consists of the id of the operation and the key of the
   * transaction.
   */
  const done = new Map<string, Action>()
  const doneKey = ({
    OperationID,
    Process,
    TransactionID,
  }: Pick<Action, 'OperationID' | 'Process' | 'TransactionID'>): string =>
    JSON.stringify([OperationID, Process, TransactionID])
  let lastId = 0
  return {
    next(entry) {
      lastId += 1
      return { ID: lastId, ...entry }
    },
    add(action) {
      lastId = Math.max(lastId, action.ID)
      // `OperationID` may be missing, because some entries were written before bulk operations existed.
      const { OperationID = null } = action as Partial<Action>
      actions.push(OperationID === null ? { ...action, OperationID } : action)
      if (OperationID !== null && action.Outcome === 'done') done.set(doneKey(action), action)
    },
    remove(action) {
      const index = actions.findLastIndex(({ ID }) => ID === action.ID)
      done.delete(doneKey(action))
      if (index !== -1) actions.splice(index, 1)
    },
    all: () => actions,
    doneBy: (OperationID, transaction) => done.get(doneKey({ OperationID, ...transaction })),
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
