/**
 * The pages and dialogs that the page Now does not need. The browser loads all of them as one file. This file imports
 * start.tsx, so that the bundler writes all code that these pages and the page Now share to a single file. Without this
 * import, the bundler would write one file for each set of pages that share code, and the page Now would need many
 * files.
 */
import './start.tsx'

export { ActivityPage } from './pages/activity.tsx'
export { BulkPage } from './pages/bulk.tsx'
export { ChartsPage } from './pages/charts.tsx'
export { EntriesPage } from './pages/entries.tsx'
export { CompanyLimitsPage, LimitsPage } from './pages/limits.tsx'
export { ProcessPage } from './pages/process.tsx'
export { SandboxPage } from './pages/sandbox.tsx'
export { QueueDialog } from './parts/queue-dialog.tsx'
