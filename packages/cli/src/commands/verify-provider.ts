import {
  chooseProxy,
  forwardProxySettings,
  type ProxyFor,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { httpUrl, parseConfig, secret } from '@integration-host/shared/process/config'
import { providerProfile } from '@integration-host/shared/provider-profile/profiles'
import { z } from 'zod'
import { defineCommand, durationMsOf, flags, texts, yesOption } from '../command.ts'
import { CommandFailed, exitCodes, UsageError } from '../exit-code.ts'
import { secretsOf, usable } from '../settings.ts'
import { confirm, isInteractive, painter, print, notify, type Terminal } from '../terminal.ts'
import { receiveCallback } from '../verify-provider/callback.ts'
import { expectationsOf } from '../verify-provider/expectations.ts'
import { createCall } from '../verify-provider/provider-call.ts'
import {
  reportDocument,
  type ReportedLine,
  reportTable,
  skipped,
  summaryOf,
} from '../verify-provider/report.ts'
import type { Session, VerifySettings } from '../verify-provider/session.ts'
import { rejectProduction, runStep, steps } from '../verify-provider/steps.ts'
import { createRedaction } from '../verify-provider/wording.ts'

/**
 * The schema of a URL in its normal form. The provider compares redirect URIs character by character, so another
 * form of the same URL would not match.
 */
const exactUrl = () =>
  z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }).refine(
    (value) => {
      const { href, username, password, hash } = new URL(value)
      return href === value && username === '' && password === '' && hash === ''
    },
    {
      error: 'must be in its normal form: lower-case host, a path, no credentials, no fragment',
      when: ({ issues }) => issues.length === 0,
    },
  )

/** The settings, validated in the same way as in token-service and the gateway. */
const Settings = z.object({
  DISCOVERY_URL: exactUrl(),
  CLIENT_ID: z.string().max(512, 'must have at most 512 characters'),
  CLIENT_SECRET: secret(),
  REDIRECT: exactUrl().refine((value) => !value.includes('?'), 'must have no query'),
  SCOPE: z.string().default('openid com.intuit.quickbooks.accounting'),
  PROVIDER_PROFILE: providerProfile(),
  ACCOUNTING_URL: httpUrl().optional(),
  ...forwardProxySettings(),
})

const DEFAULT_TIMEOUT_SECONDS = 30
const DEFAULT_WAIT_SECONDS = 300

export const verifyProvider = defineCommand({
  summary: 'compare a live provider with its documentation, with a sandbox company',
  usage: '[--yes] [--no-create] [--production] [--timeout SECONDS] [--wait SECONDS]',
  help: `Checks against the live provider what the services assume: discovery document, keys, key pair, consent, id
token, refresh, a query, a repeated create, error bodies and revocation. It connects a company for this run, prompts before
each step that changes something, and revokes the grant at the end. The table may be pasted into an issue: it contains no
token, code, key, name or complete company id. The address to open is on a line of its own on standard error.

  --yes               confirm all prompts; without --yes and without a terminal, steps that prompt are skipped
  --no-create         create no customer
  --production        accept the production accounting address: this changes real books
  --timeout SECONDS   the deadline of each call (default ${DEFAULT_TIMEOUT_SECONDS})
  --wait SECONDS      the deadline of the callback (default ${DEFAULT_WAIT_SECONDS})

It reads the settings of the services, each also as …_FILE: DISCOVERY_URL, CLIENT_ID, CLIENT_SECRET, REDIRECT (with
http://localhost or http://127.0.0.1 the callback is received here, otherwise it is pasted), SCOPE, PROVIDER_PROFILE
(default intuit), ACCOUNTING_URL where neither discovery document nor profile gives the address, and the forward proxy
(HTTPS_PROXY, HTTP_PROXY, NO_PROXY).

Verdicts: 'as documented'; 'differs', with the observation; 'skipped'; 'failed'.
Exit code 0: no check failed. 1: a check failed. 2: wrong settings, or production without --production; nothing was done.

Examples:
  integration-host verify-provider --no-create
  DISCOVERY_URL=https://developer.api.intuit.com/.well-known/openid_sandbox_configuration \\
  CLIENT_ID_FILE=client-id CLIENT_SECRET_FILE=client-secret REDIRECT=http://localhost:7217/callback \\
  integration-host verify-provider | tee report.txt`,
  options: { ...yesOption, ...flags('no-create', 'production'), ...texts('timeout', 'wait') },
  async run({ values, terminal }) {
    if (values.url !== undefined)
      throw new UsageError('verify-provider calls no service: set DISCOVERY_URL (--help)')
    const timeoutMs = durationMsOf('--timeout', values.timeout, DEFAULT_TIMEOUT_SECONDS)
    const waitMs = durationMsOf('--wait', values.wait, DEFAULT_WAIT_SECONDS)
    const given = usable(() => parseConfig(Settings, terminal.env))
    const settings = {
      discoveryUrl: given.DISCOVERY_URL,
      clientId: given.CLIENT_ID,
      clientSecrets: secretsOf(given.CLIENT_SECRET),
      redirect: given.REDIRECT,
      scope: given.SCOPE,
      profile: given.PROVIDER_PROFILE,
      accountingUrl: given.ACCOUNTING_URL ?? null,
      mayCreate: values['no-create'] !== true,
      mayUseProduction: values.production === true,
    }
    rejectProduction(settings.accountingUrl, { settings })

    const session = createSession(terminal, settings, values.yes === true, waitMs, {
      deadlineMs: timeoutMs,
      proxyFor: chooseProxy(given),
    })
    const lines: ReportedLine[] = []
    const stopped = await walk(session, terminal, lines).finally(() => {
      const notice = grantNotice(session)
      if (notice !== null) notify(terminal, notice)
    })
    await print(
      terminal,
      ...(values.json
        ? lines.map((line) => JSON.stringify(reportDocument(line, session.expectations)))
        : reportTable(lines, session.expectations, painter(terminal))),
    )
    if (stopped !== null) throw stopped
    notify(terminal, summaryOf(lines))
    return lines.some(({ verdict }) => verdict === 'failed') ? exitCodes.failed : exitCodes.ok
  },
})

/**
 * Runs the steps and appends their lines to the report. If the user interrupts the run, the report lists the
 * remaining steps as skipped, and the function resolves with the reason of the interruption. Otherwise it resolves
 * with `null`.
 *
 * @throws {UsageError} the provider's accounting address is the production address; no step after discovery has run.
 */
async function walk(
  session: Session,
  terminal: Terminal,
  lines: ReportedLine[],
): Promise<CommandFailed | null> {
  for (const [index, step] of steps.entries()) {
    notify(terminal, `${index + 1}/${steps.length} ${step.name}`)
    try {
      for await (const line of runStep(step, session)) lines.push(line)
    } catch (error) {
      if (!(error instanceof CommandFailed) || error instanceof UsageError) throw error
      for (const { name } of steps.slice(index))
        lines.push({ ...skipped(null, 'stopped'), step: name })
      return error
    }
  }
  return null
}

function createSession(
  terminal: Terminal,
  settings: VerifySettings,
  isYes: boolean,
  waitMs: number,
  calls: { readonly deadlineMs: number; readonly proxyFor: ProxyFor },
): Session {
  const redaction = createRedaction()
  redaction.add(settings.clientId, ...settings.clientSecrets.map((one) => one.reveal()))
  const canPrompt = isInteractive(terminal)
  const session: Session = {
    settings,
    expectations: expectationsOf(settings.profile),
    redaction,
    call: createCall({
      ...calls,
      signal: terminal.signal,
      onResponse({ headers }) {
        session.responses += 1
        for (const [name, value] of headers)
          if (/limit|retry|throttle/i.test(name))
            session.limitHeaders.set(name, /^\d{1,10}$/.test(value) ? value : null)
      },
    }),
    async confirm(question) {
      if (isYes || !canPrompt) return isYes
      return confirm(terminal, question).catch(() => {
        terminal.signal.throwIfAborted()
        throw new CommandFailed(exitCodes.failed, 'Stopped at a prompt.')
      })
    },
    notConfirmed: canPrompt ? 'not confirmed' : 'not confirmed (without a terminal: --yes)',
    authorize: (url, state) =>
      receiveCallback({ terminal, redirect: settings.redirect, url, state }, waitMs),
    document: null,
    keys: new Map(),
    accountingUrl: null,
    clientSecret: null,
    nonce: '',
    realm: null,
    idToken: null,
    tokens: null,
    previousRefreshToken: null,
    grant: 'none',
    responses: 0,
    limitHeaders: new Map(),
  }
  return session
}

/** Returns a hint about the grant that still exists after this run; `null` if the grant was revoked. */
function grantNotice({ grant, settings }: Session): string | null {
  if (grant === 'none' || grant === 'ended') return null
  const end =
    settings.profile.name === 'intuit'
      ? 'To end it: in QuickBooks, open Apps, then My apps, and disconnect this application.'
      : "To end it: remove this application's access in the provider's account settings."
  return grant === 'established'
    ? `The grant of this run still exists. ${end}`
    : `If consent was given in the browser, a grant may exist. ${end}`
}
