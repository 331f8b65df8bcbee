/** The session of a person, as the browser sees it. The secret of the session is in a cookie that no script can read. */
import { z } from 'zod'
import { roles } from '@integration-host/shared/access/scope'

export const signInWays = ['link', 'password', 'oidc'] as const
export type SignInWay = (typeof signInWays)[number]

/** The ways to run the command line: in a checkout or a project with npx, or in the containers of a compose stack. */
export const commandLines = ['npx', 'compose'] as const
export type CommandLine = (typeof commandLines)[number]

export const SessionView = z
  .object({
    User: z.string(),
    Role: z.enum(roles),
    ExpiresAt: z.iso.datetime().meta({ description: 'the session ends then at the latest' }),
    CheckAt: z.iso
      .datetime()
      .nullable()
      .meta({ description: 'the OpenID provider must confirm the session before; null without' }),
    Now: z.iso.datetime().meta({ description: 'the time of the server' }),
    SeesData: z.boolean().meta({ description: 'whether the person sees the data of runs' }),
    TracesUrl: z.string().nullable().meta({ description: 'the page of the trace {traceId}' }),
    Sandbox: z.boolean().meta({ description: 'the provider is the sandbox provider' }),
    CommandLine: z
      .enum(commandLines)
      .meta({ description: 'how the command line is run in this installation' }),
  })
  .meta({ ref: 'Session' })
export type SessionView = z.output<typeof SessionView>

/** The body of `POST /api/session`: the secret of a one-time link, or a user name and a password. */
export const SignIn = z
  .union([
    z.strictObject({ Link: z.string().min(1).max(100) }),
    z.strictObject({ User: z.string().min(1).max(100), Password: z.string().min(1).max(200) }),
  ])
  .meta({ ref: 'SignIn' })
export type SignIn = z.output<typeof SignIn>

/** The response of `POST /sign-in-links`: an address with which one person can sign in, and only once. */
export const SignInLink = z
  .object({ Url: z.string(), ExpiresAt: z.iso.datetime() })
  .meta({ ref: 'SignInLink' })

/** The response of `GET /api/sign-in`: the ways to sign in. */
export const SignInOptions = z
  .object({
    Ways: z.array(z.enum(signInWays)),
    Provider: z
      .string()
      .nullable()
      .meta({ description: 'the host name of the OpenID provider, if it is a way to sign in' }),
  })
  .meta({ ref: 'SignInOptions' })
export type SignInOptions = z.output<typeof SignInOptions>

/** A session of the same person, as the page *Settings* shows it. */
const OwnSession = z
  .object({
    Id: z.string().meta({ description: 'names the session, but gives no access to it' }),
    Browser: z.string(),
    IsCurrent: z.boolean().meta({ description: 'the session of this browser' }),
    CreatedAt: z.iso.datetime(),
    UsedAt: z.iso.datetime().meta({ description: 'the last use, to the half minute' }),
    ExpiresAt: z.iso.datetime(),
  })
  .meta({ ref: 'OwnSession' })

/** The response of `GET /api/sessions`. */
export const OwnSessions = z.object({ Sessions: z.array(OwnSession) }).meta({ ref: 'OwnSessions' })
export type OwnSessions = z.output<typeof OwnSessions>

/** The response of `GET /api/persons` and of `GET /sessions`: the sessions of all persons. */
export const AllSessions = z
  .object({
    Sessions: z.array(
      z.object({
        User: z.string(),
        Role: z.enum(roles).meta({ description: 'what the person may do now' }),
        Way: z.enum(signInWays),
        Browser: z.string(),
        CreatedAt: z.iso.datetime(),
        UsedAt: z.iso.datetime(),
        ExpiresAt: z.iso.datetime(),
      }),
    ),
  })
  .meta({ ref: 'AllSessions' })
export type AllSessions = z.output<typeof AllSessions>

/** The response after the sessions of a person have ended. */
export const EndedSessions = z
  .object({ Ended: z.int().meta({ description: 'the number of ended sessions' }) })
  .meta({ ref: 'EndedSessions' })
export type EndedSessions = z.output<typeof EndedSessions>
