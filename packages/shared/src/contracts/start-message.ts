/**
 * The topic exchange of start messages; the routing key is the name of the business process. A topic exchange is used
 * because on other exchanges RabbitMQ cannot limit an account to certain routing keys (topic permissions).
 */
export const START_EXCHANGE = 'integration.start'

/**
 * Returns the name of the queue whose messages become runs of a business process, such as `start.OrderProcess`. A start
 * message has the same body as `POST /processes/{process}/transactions`.
 */
export const startQueue = (process: string): string => `start.${process}`

/**
 * The routing key of events for the runs of a process, such as `OrderProcess.signal`. Their queue is `start.` with this
 * key. A topic permission for the name of the process does not cover this key.
 */
export const signalKey = (process: string): string => `${process}.signal`
