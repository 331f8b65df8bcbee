import { z } from 'zod'

/** A schedule of a process, as the coordinator shows it. */
export const ScheduleView = z
  .object({
    Process: z.string(),
    Name: z.string(),
    Cron: z.string(),
    TimeZone: z.string(),
    Each: z.string().meta({ description: 'once, or company: a run for each connected company' }),
    CatchUp: z
      .string()
      .meta({ description: 'last, all or none of the times that an outage missed' }),
    JitterSeconds: z.int().nonnegative(),
    NextTimes: z.array(z.iso.datetime()).meta({
      description: 'the next three times; empty while the schedule is paused or removed',
    }),
    LastTime: z.iso
      .datetime()
      .nullable()
      .meta({ description: 'the latest time that has begun runs' }),
    OpenTime: z.iso.datetime().nullable().meta({
      description:
        'the time for which the runs of companies are being queued; null if there is none',
    }),
    LagSeconds: z.number().nonnegative().meta({ description: 'by how much the schedule is late' }),
    Paused: z.boolean(),
    PausedAt: z.iso.datetime().nullable(),
    PausedBy: z.string().nullable().meta({
      description:
        'a person or the id of a key; null for a key that is bound to realms or lacks `transactions:read`',
    }),
    Reason: z.string().nullable().meta({
      description:
        'of the pause; null for a key that is bound to realms or lacks `transactions:read`',
    }),
    RemovedAt: z.iso.datetime().nullable().meta({
      description: 'since when the process has no schedule of this name, so that it is not fired',
    }),
  })
  .meta({ ref: 'Schedule' })
export type ScheduleView = z.output<typeof ScheduleView>

/** The response of `GET /schedules`. */
export const ScheduleList = z.object({ items: z.array(ScheduleView) }).meta({ ref: 'ScheduleList' })
export type ScheduleList = z.output<typeof ScheduleList>

/** The response of `POST /schedules/{process}/{name}/run`. */
export const StartedSchedule = z
  .object({
    TransactionID: z.string().nullable().meta({
      description:
        'the transaction; null if there is one for each company, queued in the background',
    }),
    Time: z.iso.datetime(),
  })
  .meta({ ref: 'StartedSchedule' })
