import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import {
  CredentialCounts,
  credentialStates,
  CredentialView,
} from '@integration-host/shared/contracts/credential'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { routedFixedPath } from '@integration-host/shared/http/openapi'
import { knownQuery, responses } from '@integration-host/shared/http/service-app'
import { viewOf } from '../credential/credential.ts'
import { faultClasses } from '../credential/fault.ts'
import { folded, nameRanges } from '../credential/listing.ts'
import { wholeNumber } from './request.ts'
import type { RouteDeps } from './route-deps.ts'

/** Returns the schema of a query parameter that may be repeated and may contain several values, separated by commas. */
const oneOrMore = <Item extends z.ZodType<unknown, string>>(item: Item) =>
  z
    .union([z.string(), z.array(z.string())])
    .transform((values) => [values].flat().flatMap((value) => value.split(',')))
    .pipe(z.array(item).max(20))

const TagQuery = z
  .string()
  .max(641) // A name of 64 and a value of 256 characters may take twice as many UTF-16 code units.
  .regex(/^[^:]+:/, 'must be <name>:<value>')
  .transform((text): readonly [string, string] => {
    const colon = text.indexOf(':')
    return [text.slice(0, colon), text.slice(colon + 1)]
  })

const ListQuery = z.object({
  // The cursor is not always the name of a stored credential. If a search ends a page early, the cursor is the name or
  // the end of the range at which the search has stopped.
  cursor: z
    .string()
    .regex(/^ACC-[A-Za-z0-9_.-]{1,128}~?$/, 'must be next_cursor of the previous page')
    .optional(),
  limit: wholeNumber(1, 500).optional(),
  state: oneOrMore(z.enum(credentialStates))
    .optional()
    .meta({
      description: `in one of these states: ${credentialStates.join(', ')}; separated by commas, or repeated`,
    }),
  class: oneOrMore(z.enum(Object.keys(faultClasses)))
    .optional()
    .meta({
      description: 'has a fault of one of these classes; separated by commas, or repeated',
    }),
  tag: z
    .union([TagQuery, z.array(TagQuery).max(10)])
    .optional()
    .meta({ description: '<name>:<value>; repeated: all of them' }),
  q: z.string().min(1).max(100).optional().meta({
    description:
      'the beginning of a name or realm, or a part of a label or company name; in any case',
  }),
})

const CredentialPage = z
  .object({
    items: z.array(CredentialView),
    next_cursor: z.string().nullable().meta({
      description:
        'null: the last page. Otherwise there may be more, even if this page has fewer items than the limit, or none',
    }),
  })
  .meta({ ref: 'CredentialPage' })

export const SUMMARY_PATH = '/credentials/summary'

/** The routes that list and count the credentials that the caller's key may see. */
export function credentialListRoutes({ store, refreshAheadMs }: RouteDeps): Hono {
  const tags = ['credentials']
  return new Hono()
    .get(
      '/credentials',
      needs('credentials:read'),
      describeRoute({
        operationId: 'listCredentials',
        tags,
        summary:
          'Credentials that the key may see, in the order of their names, without secrets. A credential is listed if it fulfils all conditions; of several states or classes, one',
        responses: responses(CredentialPage),
      }),
      knownQuery(ListQuery),
      async (c) => {
        const { cursor = '', limit = 100, q = '', tag = [], ...sets } = c.req.valid('query')
        const { items, next } = await store.find({
          after: cursor,
          limit,
          filter: {
            states: sets.state ?? [],
            classes: sets.class ?? [],
            tags: isOneTag(tag) ? [tag] : tag,
            text: folded(q),
            ranges: nameRanges(callerOf(c).realms),
          },
        })
        return c.json({
          items: items.map((credential) => viewOf(credential, refreshAheadMs)),
          next_cursor: next,
        })
      },
    )
    .get(
      routedFixedPath(SUMMARY_PATH),
      needs('credentials:read'),
      describeRoute({
        operationId: 'getCredentialSummary',
        tags,
        summary: 'How many credentials the key may see, by state and by class of the fault',
        responses: responses(CredentialCounts),
      }),
      onlyKnownQuery(),
      async (c) => {
        const { total, states, classes } = await store.summary(nameRanges(callerOf(c).realms))
        return c.json({ Total: total, States: states, Classes: classes })
      },
    )
}

type TagPair = z.output<typeof TagQuery>
const isOneTag = (tag: TagPair | readonly TagPair[]): tag is TagPair => typeof tag[0] === 'string'
