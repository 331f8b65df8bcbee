/**
 * The pages and dialogs that the page Now does not need. The browser loads all of them as one file. This file imports
 * start.tsx, so that the bundler writes all code that these pages and the page Now share to a single file. Without this
 * import, the bundler would write one file for each set of pages that share code, and the page Now would need many
 * files.
 */
import './start.tsx'

export { default as ActivityPage } from './pages/activity.tsx'
export { default as BulkPage } from './pages/bulk.tsx'
export { default as ChartsPage } from './pages/charts.tsx'
export { default as CompanyLimitsPage } from './pages/company-limits.tsx'
export { default as EntriesPage } from './pages/entries.tsx'
export { default as LimitsPage } from './pages/limits.tsx'
export { default as ProcessPage } from './pages/process.tsx'
export { default as SandboxPage } from './pages/sandbox.tsx'
export { default as QueueDialog } from './parts/queue-dialog.tsx'
