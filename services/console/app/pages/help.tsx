import { Link } from '../parts/link.tsx'

/** The content of the help. It is part of the console and works without the internet. */
export default function HelpPage() {
  return (
    <>
      <h1 tabIndex={-1}>Help</h1>
      <p className="lead">These documents are part of the console and need no internet.</p>
      <ul className="cards">
        <li className="panel">
          <h2>
            <Link to="/help/runbook">Runbook</Link>
          </h2>
          <p>What each condition means, what to look at and what to do.</p>
        </li>
        <li className="panel">
          <h2>
            <Link to="/help/errors">Errors</Link>
          </h2>
          <p>Every error code of the services and every error class of a run, with what helps.</p>
        </li>
      </ul>
    </>
  )
}
