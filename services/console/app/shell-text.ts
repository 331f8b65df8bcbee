/** Commands that a person copies into a shell. */

/** Quotes an argument for a POSIX shell. A plain word needs no quotes. */
export const quoted = (text: string): string =>
  /^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`

/** Returns the command that shows a run. */
export const showCommand = (process: string, id: string, run: number): string =>
  // Without `--`, an id that begins with a hyphen would be read as an option.
  `npx integration-host transactions show --process ${quoted(process)} --replay ${run} -- ${quoted(id)}`

/**
 * Returns a curl command that requests a run. The command reads the key from the environment and passes it through
 * standard input, because other users of the machine can read the arguments of a program.
 */
export const curlCommand = (process: string, id: string, run: number): string =>
  `printf 'Authorization: Bearer %s\\n' "$SERVICE_API_KEY" | ` +
  `curl -H @- "$COORDINATOR_URL"${quoted(
    `/processes/${encodeURIComponent(process)}/transactions/${encodeURIComponent(id)}?replay=${run}`,
  )}`
