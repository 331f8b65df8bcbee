/**
 * The settings that a person has chosen in this browser. The settings are in the local storage of the browser, and
 * contain no secrets.
 */
import { createStore } from './store.ts'
import { type TimeStyle, timeStyles } from './time-format.ts'

export const themes = ['system', 'light', 'dark'] as const
export const densities = ['comfortable', 'compact'] as const
const switches = ['on', 'off'] as const
export const noticeChoices = ['off', 'on'] as const

export interface Settings {
  readonly theme: (typeof themes)[number]
  readonly density: (typeof densities)[number]
  readonly times: TimeStyle
  /** The IANA time zone of `times: 'zone'`. */
  readonly zone: string
  /** Whether keyboard shortcuts without a modifier key are enabled. */
  readonly shortcuts: (typeof switches)[number]
  /** Whether a desktop notice is shown for each critical condition that begins. */
  readonly notices: (typeof noticeChoices)[number]
}

/** The time zones that the browser knows. */
export const zones: readonly string[] = ['UTC', ...Intl.supportedValuesOf('timeZone')]

const settings = createStore(read())

function read(): Settings {
  // If no valid value is stored, the first of the possible values is used.
  const stored = <Value extends string>(name: keyof Settings, values: readonly Value[]): Value => {
    const value = localStorage.getItem(name)
    return values.find((one) => one === value) ?? (values[0] as Value)
  }
  return {
    theme: stored('theme', themes),
    density: stored('density', densities),
    times: stored('times', timeStyles),
    zone: stored('zone', zones),
    shortcuts: stored('shortcuts', switches),
    notices: stored('notices', noticeChoices),
  }
}

function apply(): void {
  const { dataset } = document.documentElement
  const { theme, density } = settings.get()
  dataset['theme'] = theme
  dataset['density'] = density
}

function readAgain(): void {
  settings.set(read())
  apply()
}

/**
 * Applies the settings to the page, now and whenever another tab changes them. Called once, before any page is shown.
 */
export function followSettings(): void {
  apply()
  // The browser sends this event to all tabs except the tab that changes the setting.
  window.addEventListener('storage', readAgain)
}

export function choose<Name extends keyof Settings>(name: Name, value: Settings[Name]): void {
  localStorage.setItem(name, value)
  readAgain()
}

export const currentSettings = settings.get

/** Returns the settings; the component is rendered again when a setting changes. */
export const useSettings = (): Settings => settings.use((current) => current)
