/** The port to the number of the actions of persons at all replicas of the console. */
export interface ActionCounter {
  /** Adds one action, and returns the new number. */
  increment(): Promise<number>
  /** Returns the number; 0 if there was no action. */
  read(): Promise<number>
}
