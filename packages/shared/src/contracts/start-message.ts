/**
 * The topic exchange of start messages; the routing key is the name of the business process. It is a topic exchange,
 * because RabbitMQ can then limit an account to the routing keys of certain processes (topic permissions).
 */
export const START_EXCHANGE = 'integration.start'

/**
 * Returns the name of the queue whose messages become runs of a business process, such as `start.OrderProcess`. The
 * body of a start message is that of `POST /processes/{process}/transactions`.
 */
export const startQueue = (process: string): string => `start.${process}`
