/** The list of runs. The library for its virtual rows is large, so the browser loads this page as a separate file. */
import './start.tsx'

export { RunsPage } from './pages/runs.tsx'
