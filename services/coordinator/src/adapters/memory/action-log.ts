import type { Action, ActionFilter } from '../../run/action.ts'

export type ActionLog = ReturnType<typeof createActionLog>

/** The action log of the memory source. */
export function createActionLog() {
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
    /**
     * Returns a complete entry with a new `ID`, which is larger than all earlier ids. The entry is not added to the log.
     */
    next(entry: Omit<Action, 'ID'>): Action {
      lastId += 1
      return { ID: lastId, ...entry }
    },
    add(action: Action): void {
      lastId = Math.max(lastId, action.ID)
      // `OperationID` may be missing, because some entries were written before bulk operations existed.
      const { OperationID = null } = action as Partial<Action>
      actions.push(OperationID === null ? { ...action, OperationID } : action)
      if (OperationID !== null && action.Outcome === 'done') done.set(doneKey(action), action)
    },
    /** Removes an entry that could not be written to the disk. */
    remove(action: Action): void {
      const index = actions.findLastIndex(({ ID }) => ID === action.ID)
      done.delete(doneKey(action))
      if (index !== -1) actions.splice(index, 1)
    },
    all: (): readonly Action[] => actions,
    /**
     * Returns the entry that the bulk operation has written when it changed this transaction; `undefined` if it has not
     * changed the transaction.
     */
    doneBy: (
      OperationID: string,
      transaction: Pick<Action, 'Process' | 'TransactionID'>,
    ): Action | undefined => done.get(doneKey({ OperationID, ...transaction })),
    /** Returns entries, newest first. */
    list({ process, transactionId, before = Infinity, limit }: ActionFilter): Action[] {
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
