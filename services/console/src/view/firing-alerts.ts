/** Merges the firing alerts of Prometheus into the conditions that the console has found itself. */
import { conditions as catalogue, isConditionName } from '@integration-host/shared/conditions'
import { type Condition, mostUrgentFirst } from './condition.ts'

/**
 * An alert that Prometheus reports. Its texts come from the alert rules of the installation, so they may contain
 * anything.
 */
export interface FiringAlert {
  readonly labels: Readonly<Record<string, string>>
  readonly summary: string
  /** The time since which the expression of the alert is true, in epoch milliseconds. */
  readonly activeAt: number
}

/** The maximum number of labels that a condition shows. */
const SHOWN_LABELS = 5

/**
 * Merges the firing alerts into the conditions. If the console has itself found the condition that an alert reports,
 * the alert is not shown separately. Instead, the condition is shown at once, even if it has not yet lasted for its
 * minimum duration, and its begin is not later than that of the alert. Any other alert is shown as a separate
 * condition.
 */
export function withFiringAlerts(
  conditions: readonly Condition[],
  alerts: readonly FiringAlert[],
): readonly Condition[] {
  const merged = conditions.map((condition) => {
    const times = alerts.flatMap((alert) => (isAbout(alert, condition) ? [alert.activeAt] : []))
    return times.length === 0
      ? condition
      : { ...condition, forMs: 0, noLaterThan: Math.min(...times) }
  })
  const others = alerts.filter((alert) => !conditions.some((one) => isAbout(alert, one)))
  return mostUrgentFirst([
    ...merged.filter(({ isConsequence = false }) => !isConsequence),
    ...others.map(conditionOf),
  ])
}

/**
 * Returns whether an alert has the name of a condition, and no label that contradicts the condition. An alert about a
 * dependency belongs to the condition of what is down, whatever that condition's name is.
 */
function isAbout(alert: FiringAlert, { name, labels = {} }: Condition): boolean {
  const { alertname } = alert.labels
  const dependency =
    alertname === 'RedisRejectsWrites' ? 'redis-writes' : alert.labels['dependency']
  if (dependency !== undefined && labels['dependency'] !== undefined)
    return labels['dependency'].includes(dependency)
  return (
    alertname === name &&
    Object.entries(labels).every(([label, values]) =>
      values.includes(alert.labels[label] ?? values[0] ?? ''),
    )
  )
}

function conditionOf({ labels, summary, activeAt }: FiringAlert): Condition {
  const { alertname: name = 'Alert', severity = '', ...others } = labels
  const sorted = Object.entries(labels).toSorted(([one], [other]) => (one < other ? -1 : 1))
  return {
    key: `Prometheus ${JSON.stringify(sorted)}`,
    name,
    severity: severityOf(severity),
    title: summary === '' ? name : summary,
    detail: [name, ...Object.entries(others).map(([label, value]) => `${label} ${value}`)]
      .slice(0, 1 + SHOWN_LABELS)
      .join(' · '),
    remedy: isConditionName(name) ? catalogue[name].remedy : 'Prometheus reports this alert.',
    affected: 1,
    knownSince: activeAt,
    page: null,
  }
}

/**
 * Returns the severity of an alert. An alert without a known severity label is a warning, because the rules of an
 * installation may use any labels.
 */
function severityOf(label: string): Condition['severity'] {
  if (label === 'critical' || label === 'page') return 'critical'
  return label === 'info' || label === 'none' ? 'info' : 'warning'
}
