/**
 * The catalogue of what can be wrong: the alert rules of Prometheus, the heads of the runbook's sections, the conditions
 * of the console and the remedies of `integration-host doctor` are made from it (`npm run docs`).
 *
 * In a sentence, `{name}` stands for a label of the alert, and `{value}` for its value.
 */

interface Condition {
  /** `critical`: customers are affected or will be soon. `warning`: handle it within the day. */
  readonly severity: 'critical' | 'warning'
  /** What is wrong, as a sentence without its full stop. */
  readonly sentence: string
  /** What an operator does about it, in whole sentences. */
  readonly remedy: string
}

/** A condition with an alert rule. */
interface Alert extends Condition {
  /** The query of the rule, in PromQL. */
  readonly expr: string
  /** How long the query must have a result. */
  readonly for?: `${number}${'s' | 'm'}`
}

type Conditions = Readonly<Record<string, Alert>>

const services = {
  ServiceDown: {
    severity: 'critical',
    sentence: '{job} {instance} does not respond',
    remedy: 'Start the service. What it had accepted is stored, and continues then.',
    for: '1m',
    expr: `
      up{job=~"token-service|accounting-gateway|coordinator|webhook-receiver|demo-api"} == 0
      or absent(up{job="token-service"})
      or absent(up{job="accounting-gateway"})
      or absent(up{job="coordinator"})
    `,
  },
  DependencyDown: {
    severity: 'critical',
    sentence: 'A replica of {service} waits for {dependency}',
    remedy: 'Restore the dependency. The service reconnects to it by itself.',
    for: '2m',
    expr: 'min by (service, dependency) (dependency_up) == 0',
  },
  // This alert fires sooner than DependencyDown, because no access token can be refreshed until Redis accepts writes.
  RedisRejectsWrites: {
    severity: 'critical',
    sentence: 'Redis rejects the writes of {service}: no credential can be refreshed',
    remedy:
      'Fix what the error code names: the memory, the disk or the replicas of Redis, or the account of token-service.',
    for: '30s',
    expr: `
      min by (service) (dependency_up{dependency="redis-writes"}) == 0
      and min by (service) (dependency_up{dependency="redis"}) == 1
    `,
  },
  ServiceKeysFileInvalid: {
    severity: 'warning',
    sentence: 'The key file of {service} {instance} is not valid: an earlier list is still used',
    remedy: 'Correct the file. Do not restart the service before: it would not start.',
    for: '1m',
    expr: 'min by (service, instance) (service_keys_file_valid) == 0',
  },
  EventLoopLag: {
    severity: 'warning',
    sentence: 'The event loop of {service} {instance} is overloaded',
    remedy: 'Add a replica, or give the process a whole core.',
    for: '10m',
    expr: 'nodejs_eventloop_lag_p99_seconds > 0.25',
  },
} as const satisfies Conditions

const providerWebhooks = {
  // Anyone can send a request with a wrong signature, so rejected requests alone do not show a fault. If no webhook was
  // accepted in the same 30 minutes, an operator must check the verifier token.
  WebhooksRejected: {
    severity: 'warning',
    sentence: 'Every webhook of the last 30 minutes was rejected because of its signature',
    remedy:
      'If the verifier token at the provider has changed, set WEBHOOK_VERIFIER_TOKENS to new,old and restart webhook-receiver.',
    expr: `
      sum(increase(webhook_deliveries_total{outcome="signature_invalid"}[30m])) > 3
      unless sum(increase(webhook_deliveries_total{outcome="accepted"}[30m])) > 0
    `,
  },
  WebhooksUnconfirmed: {
    severity: 'critical',
    sentence:
      '{value} webhooks could not be passed to the broker in time; the provider sends them again',
    remedy: 'Fix the broker. For too_many_deliveries, start more replicas.',
    for: '5m',
    expr: 'sum(increase(webhook_deliveries_total{outcome=~"broker_unavailable|too_many_deliveries"}[10m])) > 3',
  },
  WebhooksUnreadable: {
    severity: 'warning',
    sentence: 'Signed webhooks have a format, or report changes, that this version does not know',
    remedy: 'Upgrade. Until then unsubscribe from entities that no process needs.',
    expr: `
      sum(increase(webhook_deliveries_total{outcome="invalid_request"}[1h])) > 3
      or sum(increase(webhook_events_ignored_total[1h])) > 20
    `,
  },
} as const satisfies Conditions

const custody = {
  CredentialsFaulted: {
    severity: 'critical',
    sentence: 'The credentials of {value} companies cannot be refreshed',
    remedy:
      'Refreshes are retried by themselves. A company whose grant is gone must be connected again by its owner.',
    for: '1m',
    expr: 'max(credentials_faulted) > 0',
  },
  TokenNearExpiry: {
    severity: 'critical',
    sentence: 'An access token expires in {value} s and was not refreshed',
    remedy: 'Look at the other conditions first, then at the log of token-service.',
    for: '1m',
    expr: 'min(credential_nearest_expiry_seconds) < 120',
  },
  ProviderClientRefused: {
    severity: 'critical',
    sentence: 'The provider rejects CLIENT_ID and CLIENT_SECRET',
    remedy:
      'Check the application at the provider. If its secret has changed, set CLIENT_SECRET to new,old and restart token-service.',
    for: '1m',
    expr: 'max(provider_client_refused) == 1',
  },
  // The alert ends when no company has a fault any more. A failure that does not concern the grant causes no fault
  // while the access token is valid, so such a failure counts for five minutes.
  RefreshesFailing: {
    severity: 'warning',
    sentence: '{value:percentage} of the refreshes fail',
    remedy:
      'The class of the failures shows the cause. Nothing has to be done for provider_unavailable and throttled.',
    for: '5m',
    expr: `
      sum(rate(credential_refreshes_total{outcome="failed"}[15m]))
      / sum(rate(credential_refreshes_total{outcome!="superseded"}[15m])) > 0.2
      and on () (max(credentials_faulted) > 0
      or sum(rate(credential_refreshes_total{class=~"provider_.*|throttled|client_refused"}[5m])) > 0)
    `,
  },
  // A process that shuts down is rarely scraped again. So the alert also fires if a replica has disappeared whose last
  // scrape showed a token pair that was not stored. This includes replicas that crashed.
  RotationDropped: {
    severity: 'critical',
    sentence: '{value} rotated token pairs were lost: companies may have to reconnect',
    remedy:
      'Restore Redis, and start token-service again with the same RESCUE_DIR. Then refresh the companies that its log names.',
    expr: `
      sum(credential_refreshes_total{outcome="rotation_dropped"}) > 0
      or sum((last_over_time(credential_rotations_uncommitted[15m]) > 0) unless credential_rotations_uncommitted) > 0
    `,
  },
  RedisLostWrites: {
    severity: 'warning',
    sentence: 'Redis lost {value} token pairs that it had accepted; they were stored again',
    remedy:
      'Set REDIS_REPLICAS if Redis has replicas, or else appendfsync always. Reconnect the companies that have invalid_grant.',
    expr: 'sum by (source) (increase(credential_pairs_restored_total{source="memory"}[15m])) > 0',
  },
  ProviderSlow: {
    severity: 'warning',
    sentence: 'The 95th percentile of {call} at the provider is {value:duration}',
    remedy: 'Look at the status page of the provider. Nothing has to be done here.',
    for: '10m',
    expr: 'histogram_quantile(0.95, sum by (le, call) (rate(provider_request_duration_seconds_bucket[10m]))) > 5',
  },
  PayloadsUnreadable: {
    severity: 'critical',
    sentence: 'Data of runs cannot be decrypted',
    remedy: 'Append the missing key to PAYLOAD_KEYS, then resume the runs.',
    expr: 'sum(increase(coordinator_payloads_unreadable_total[15m])) > 0',
  },
  EnvelopesRefused: {
    severity: 'critical',
    sentence: 'Stored secrets cannot be decrypted',
    remedy:
      'Append the missing key to CREDENTIAL_KEYS. If the keys are right, another program has changed the data in Redis: reconnect the company.',
    expr: 'sum(increase(envelopes_refused_total[15m])) > 0',
  },
} as const satisfies Conditions

const gateway = {
  GatewayErrors: {
    severity: 'warning',
    sentence: '{value:percentage} of the calls to the accounting API fail',
    remedy:
      '502 and 504 come from the accounting API or the network to it, 503 from token-service, 500 from a defect of the gateway.',
    for: '5m',
    expr: 'sum(rate(gateway_requests_total{status=~"5.."}[5m])) / sum(rate(gateway_requests_total[5m])) > 0.05',
  },
  GatewayThrottling: {
    severity: 'warning',
    sentence: 'Callers exceed the rate that the provider allows for a company',
    remedy: 'Slow the caller down, or let it batch its calls.',
    for: '15m',
    expr: 'sum(rate(gateway_throttled_total[5m])) > 0',
  },
  RealmsOnHold: {
    severity: 'warning',
    sentence: '{value} companies are in cool-down because the provider keeps responding with 429',
    remedy: 'Look for another program that calls the API with the same application.',
    for: '15m',
    expr: 'max(gateway_realms_on_hold) > 0',
  },
  BudgetNearlyUsed: {
    severity: 'warning',
    sentence: '{value:percentage} of the metered calls of this month are used',
    remedy:
      'Find the process that reads too often, or order a larger plan and raise MONTHLY_BUDGET.',
    expr: 'max(gateway_metered_calls_this_month) / max(gateway_monthly_budget) > 0.8',
  },
  BudgetUsed: {
    severity: 'critical',
    sentence: 'The metered calls of this month are used up: the provider may block the application',
    remedy: 'Pause the processes that read, or order a larger plan and raise MONTHLY_BUDGET.',
    expr: 'max(gateway_metered_calls_this_month) / max(gateway_monthly_budget) >= 1',
  },
} as const satisfies Conditions

const processes = {
  BooksOutOfBalance: {
    severity: 'critical',
    sentence: 'The audit counts {value} {kind}',
    remedy: 'What helps depends on the kind of the count: the runbook lists the kinds.',
    for: '3m',
    expr: 'max by (kind) (coordinator_violations) > 0',
  },
  RunsFailed: {
    severity: 'warning',
    sentence: '{value} runs failed within 15 minutes',
    remedy: 'Fix the cause, then resume the runs: the same idempotency keys are sent again.',
    expr: `
      max(coordinator_transactions{status="Failed"})
      - max(coordinator_transactions{status="Failed"} offset 15m) > 0
    `,
  },
  RunsInDoubt: {
    severity: 'warning',
    sentence: '{value} runs have ended, and an attempt of each may have done its work',
    remedy: 'Look into the target, then settle or resume the runs.',
    for: '5m',
    expr: 'max(coordinator_runs_in_doubt{state="ended"}) > 0',
  },
  RunsWaiting: {
    severity: 'warning',
    sentence: '{value} runs wait for a credential',
    remedy: 'The runs continue by themselves when their companies are connected again.',
    for: '15m',
    expr: 'max(coordinator_waiting_runs{for="credential"}) > 0',
  },
  RunsBooksClosed: {
    severity: 'warning',
    sentence: '{value} runs wait because the books of their companies are closed',
    remedy:
      'Have the period opened or its closing date moved, then retry the runs. They do not continue by themselves.',
    for: '5m',
    expr: 'max(coordinator_waiting_runs{for="books"}) > 0',
  },
  RunsNotTaken: {
    severity: 'critical',
    sentence: '{value} runs are due at {process}.{step} and no worker claims them',
    remedy: 'Resume the process, start a coordinator, or fix what its /health/ready names.',
    for: '10m',
    expr: `
      max by (process, step) (coordinator_due_runs) > 0
      unless on (process, step) sum by (process, step) (rate(coordinator_steps_total[10m])) > 0
    `,
  },
  RunsLate: {
    severity: 'warning',
    sentence: 'A run at {process}.{step} has been due for {value:duration}',
    remedy:
      'Nothing has to be done if the number of due runs falls. Otherwise add a coordinator, or raise PREFETCH.',
    for: '5m',
    expr: 'max by (process, step) (coordinator_oldest_due_seconds) > 300',
  },
  DeadMessages: {
    severity: 'warning',
    sentence:
      '{value} messages of {process} could not be processed: integration-host dead-letters list',
    remedy:
      'Remove the cause that the reason of each message names. Then requeue or discard the message.',
    expr: 'max by (process) (coordinator_dead_messages) > 0',
  },
  OperationPaused: {
    severity: 'warning',
    sentence: '{value} bulk operations are paused after failures',
    remedy: 'Fix the cause of the failures, then continue or stop the operation.',
    for: '5m',
    expr: 'max(coordinator_operations{status="Paused"}) > 0',
  },
  ScheduleLate: {
    severity: 'warning',
    sentence: 'The schedule {schedule} of {process} is {value:duration} late',
    remedy: 'Restore what the log of the coordinator names. The schedule continues by itself.',
    expr: 'max by (process, schedule) (coordinator_schedule_lag_seconds) > 300',
  },
  MessagesWaiting: {
    severity: 'warning',
    sentence: '{value} messages wait in the queue {kind}.{process}',
    remedy: 'Resume the process, or fix what keeps its coordinators from consuming the queue.',
    for: '15m',
    expr: 'max by (process, kind) (coordinator_waiting_messages) > 1000',
  },
  ChangeFeedBehind: {
    severity: 'warning',
    sentence: 'The change feed of a company was not read for {value:duration}',
    remedy:
      'Fix the cause that the failed runs of ChangeFeed name. The next sweep continues where the last one ended.',
    expr: 'max(coordinator_change_feed_lag_seconds) > 108000',
  },
  EntriesOutside: {
    severity: 'warning',
    sentence:
      '{value} objects that runs have written were found changed, voided, deleted or missing within a day',
    remedy:
      'Look at the objects in the books: entries list --state names them with their runs. A replay of a run creates its object again.',
    expr: 'sum(max by (state, entity) (coordinator_entries_outside)) > 0',
  },
  WebhooksUndelivered: {
    severity: 'warning',
    sentence: 'The receiver {receiver} has not got a webhook for {value:duration}',
    remedy: 'Inform the operator of the receiver. Everything follows in order when it is back.',
    for: '5m',
    expr: 'max by (receiver) (coordinator_webhook_oldest_seconds) > 1800',
  },
  WebhooksFileInvalid: {
    severity: 'warning',
    sentence: 'The webhooks file of {instance} is not valid: an earlier list is still used',
    remedy: 'Correct the file. Do not restart the service before: it would not start.',
    for: '1m',
    expr: 'min by (instance) (webhooks_file_valid) == 0',
  },
  ProcessFilesFailed: {
    severity: 'warning',
    sentence: '{instance} could not load {value} of the files, folders and packages of PROCESSES',
    remedy: 'Correct what the log of the coordinator names as not loaded, then restart it.',
    for: '1m',
    expr: 'max by (instance) (coordinator_process_files_failed) > 0',
  },
  RetentionBehind: {
    severity: 'warning',
    sentence: 'Old runs have not been purged completely for {value:duration}',
    remedy: 'Fix what the log of the coordinator names. The next pass continues by itself.',
    for: '10m',
    expr: 'max(coordinator_retention_pass_age_seconds) > 21600',
  },
  LeasesLost: {
    severity: 'warning',
    sentence: '{value} steps lost their lease within 15 minutes',
    remedy: 'Give the coordinator and Postgres more resources, or lower PREFETCH.',
    expr: 'sum(increase(coordinator_steps_total{outcome=~"lost|fenced"}[15m])) > 5',
  },
  SweepsMany: {
    severity: 'warning',
    sentence: 'Messages get lost: the sweeper re-publishes {value} per second',
    remedy: 'Remove a policy of the broker that deletes messages of steps.*, or add a coordinator.',
    for: '15m',
    expr: 'sum(rate(coordinator_sweep_publishes_total[15m])) > 1',
  },
  InternetAway: {
    severity: 'warning',
    sentence: 'No probe reaches the internet; processes that need it are suspended',
    remedy: 'Check the network of the coordinator. The processes continue by themselves.',
    for: '5m',
    expr: 'max(coordinator_online) == 0',
  },
} as const satisfies Conditions

// Needs the job of rabbitmq.yml. Each node reports rabbitmq_detailed_queue_info for every queue of which it has a
// member, and a queue whose nodes are all down is not reported at all. So the current numbers of nodes and members are
// compared with the highest numbers of the last day.
const broker = {
  QueueMembersMissing: {
    severity: 'warning',
    sentence: '{value} quorum queues have fewer members online than there are nodes, or than three',
    remedy: 'Start the missing node, or run the rabbitmq-queues grow commands that doctor prints.',
    for: '5m',
    expr: `
      count(
        count by (vhost, queue) (rabbitmq_detailed_queue_info{queue_type="rabbit_quorum_queue"})
        < on () group_left () clamp_max(max_over_time(count(up{job="rabbitmq"} == 1)[1d:5m]), 3)
      ) > 0
    `,
  },
  // The second part applies only while a node is down. Otherwise a deleted queue would be counted for a day.
  QueueUnavailable: {
    severity: 'critical',
    sentence: '{value} quorum queues have no leader, or no majority of their members online',
    remedy: 'Start the nodes. The steps continue by themselves.',
    for: '1m',
    expr: `
      count(
        (
          count by (vhost, queue) (rabbitmq_detailed_queue_info{queue_type="rabbit_quorum_queue"})
          unless count by (vhost, queue) (rabbitmq_detailed_queue_info{membership="leader"})
        )
        or (
          (
            count by (vhost, queue) (
              last_over_time(rabbitmq_detailed_queue_info{queue_type="rabbit_quorum_queue"}[1d])
            )
            unless (
              2 * count by (vhost, queue) (rabbitmq_detailed_queue_info{queue_type="rabbit_quorum_queue"})
              > clamp_max(
                count by (vhost, queue) (
                  count by (vhost, queue, instance) (
                    last_over_time(rabbitmq_detailed_queue_info{queue_type="rabbit_quorum_queue"}[1d])
                  )
                ), 3
              )
            )
          )
          and on () (
            (count(up{job="rabbitmq"} == 1) or vector(0))
            < max_over_time(count(up{job="rabbitmq"} == 1)[1d:5m])
          )
        )
      ) > 0
    `,
  },
} as const satisfies Conditions
/** The conditions that only the console finds. */
const consoleConditions = {
  GrantsExpiring: {
    severity: 'warning',
    sentence: 'The grants of some companies end soon',
    remedy: 'Ask the owners of these companies to authorize again before that.',
  },
  RunsLosingWorkers: {
    severity: 'warning',
    sentence: 'Runs of {process} lost two workers in a row at {step}',
    remedy: 'Look at the last line of the log of each coordinator that ended, and cancel the runs.',
  },
  RunsAwaitDecision: {
    severity: 'warning',
    sentence: 'Some runs wait for a decision',
    remedy:
      'Decide on the page of each run. For a person who does not use the console, transactions link makes an address.',
  },
  ProcessPaused: {
    severity: 'warning',
    sentence: '{process} is paused',
    remedy: 'Its runs wait until the process is resumed.',
  },
  CompanyPaused: {
    severity: 'warning',
    sentence: 'The runs of company {realm} are paused',
    remedy: 'They wait until the company is resumed.',
  },
} as const satisfies Readonly<Record<string, Condition>>

/** The alerts by their group. Every replica reports the same values for metrics of a shared store. */
export const alertGroups: Readonly<Record<string, Conditions>> = {
  services,
  'provider-webhooks': providerWebhooks,
  custody,
  gateway,
  processes,
  broker,
}

const all = {
  ...services,
  ...providerWebhooks,
  ...custody,
  ...gateway,
  ...processes,
  ...broker,
  ...consoleConditions,
}
export type ConditionName = keyof typeof all

/** All conditions by their names. docs/runbook.md has a section for each. */
export const conditions: Readonly<Record<ConditionName, Condition & Partial<Alert>>> = all

/** Returns whether the catalogue has a condition of this name. */
export const isConditionName = (name: string): name is ConditionName =>
  Object.hasOwn(conditions, name)

/** The value of an alert, or its label, in a sentence. */
export const PLACEHOLDER = /\{(\w+)(?::(\w+))?\}/g

/** Returns the sentence of a condition with these values in place of `{…}`. */
export const sentenceOf = (
  name: ConditionName,
  values: Readonly<Record<string, string | number>>,
): string =>
  conditions[name].sentence.replaceAll(PLACEHOLDER, (_, key: string) => String(values[key] ?? '…'))

/** Returns how long the query of an alert must have a result before the alert fires, in milliseconds. */
export function durationMs(name: ConditionName): number {
  const [, number = '0', unit] = /^(\d+)([sm])$/.exec(conditions[name].for ?? '') ?? []
  return Number(number) * (unit === 'm' ? 60_000 : 1_000)
}

/** Returns the place of the runbook's section about a condition. */
export const runbookPlace = (name: ConditionName): string => `docs/runbook.md#${name.toLowerCase()}`

/** Returns the remedy of a condition and the place of its section. `first` is what to begin with, such as a command. */
export const remedyFor = (name: ConditionName, first?: string): string =>
  `${first === undefined ? '' : `${first}. `}${conditions[name].remedy.replace(/\.$/, '')} (${runbookPlace(name)}).`
