import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type Fixture, onBackends } from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'

/** What the children of a test do. */
const world = {
  /** The lines that fail. */
  failing: new Set<number>(),
  /** The lines that wait until the test lets them go on. */
  held: new Set<number>(),
  running: 0,
  most: 0,
  undone: [] as number[],
  started: [] as number[],
}

const LineData = z.object({ no: z.number() })
const line = defineProcess('Line', { input: LineData }).step(
  'post',
  async (step) => {
    const { no } = step.initialData
    world.started.push(no)
    world.running += 1
    world.most = Math.max(world.most, world.running)
    try {
      if (world.held.has(no)) step.waitFor(50)
      await new Promise((resolve) => setTimeout(resolve, 5))
      if (world.failing.has(no)) step.fail('no')
      return step.complete(no * 10)
    } finally {
      world.running -= 1
    }
  },
  {
    undo: (step) => {
      world.undone.push(step.initialData.no)
      return step.complete()
    },
  },
)
const Order = z.object({ lines: z.array(LineData) })
const list = {
  items: (step: { readonly initialData: z.output<typeof Order> }) =>
    step.initialData.lines.map((one) => ({ id: one.no, data: one })),
}
const order = defineProcess('Order', { input: Order })
  .step('read', (step) => step.complete())
  .forEach('lines', line, list)
  .step('sum', async (step) => {
    const data: (number | null)[] = []
    for await (const child of step.children('lines')) data.push(child.data)
    return step.complete({ result: step.previous.data, data })
  })
const slow = defineProcess('Slow', { input: Order }).forEach('lines', line, {
  ...list,
  concurrent: 2,
  tolerate: '50%',
})
/** A process whose children have children. */
const batch = defineProcess('Batch', { input: z.array(Order) }).forEach('orders', order, {
  items: (step) => step.initialData.map((one, n) => ({ id: `o${n}`, data: one, realm: `${n}` })),
})

/** A process whose second item does not match the input of its children. */
const wrong = defineProcess('Wrong', { input: Order }).forEach('lines', line, {
  items: (step) =>
    step.initialData.lines.map(({ no }) => ({
      id: no,
      data: { no: no === 2 ? ('x' as unknown as number) : no },
    })),
})

/** A process whose input is the ids of its items. */
const named = defineProcess('Named', { input: z.array(z.union([z.string(), z.number()])) }).forEach(
  'lines',
  line,
  {
    items: (step) =>
      step.initialData.map((id, n) => ({ id: id === 'NaN' ? Number.NaN : id, data: { no: n } })),
  },
)

const lines = (count: number) => Array.from({ length: count }, (_, n) => ({ no: n + 1 }))

interface ReadRun {
  readonly Status: string
  readonly ErrorClass: string | null
  readonly LastError: string | null
  readonly WaitingFor: string | null
  readonly Realm: string
  readonly ReplayID: number
  readonly Items: readonly {
    readonly StepName: string
    readonly Status: string
    readonly Data: unknown
  }[]
  readonly Parent?: object
  readonly Children?: readonly object[]
}

/** Tests of runs with children, from the API to the end of the parent. All backends must pass these tests. */
export function familiesContract(kind: 'embedded' | 'real'): void {
  describe(`children on ${kind} backends`, () => {
    beforeEach(() => {
      Object.assign(world, { running: 0, most: 0, undone: [], started: [] })
      world.failing.clear()
      world.held.clear()
    })
    const { start } = onBackends(
      kind,
      {
        Order: ['read', 'lines', 'sum'],
        Slow: ['lines'],
        Batch: ['orders'],
        Wrong: ['lines'],
        Named: ['lines'],
        ...Object.fromEntries([0, 1, 2, 3, 4, 5].map((n) => [`L${n}`, ['c']])),
        L6: ['end'],
        Line: ['post'],
      },
      { processes: [order, slow, batch, wrong, named, line] },
    )
    const post = (host: Fixture, path: string, body: object = {}) => host.call(path, postJson(body))
    const pathOf = (id: string, process = 'Order', rest = '') =>
      `/processes/${process}/transactions/${encodeURIComponent(id)}${rest}`
    const queue = async (host: Fixture, id: string, InitialData: unknown, process = 'Order') => {
      const response = await post(host, `/processes/${process}/transactions`, {
        TransactionID: id,
        InitialData,
        Realm: '42',
      })
      expect(response.status).toBe(202)
    }
    const read = async (host: Fixture, id: string, process = 'Order') =>
      (await (await host.call(pathOf(id, process))).json()) as ReadRun
    const reached = async (host: Fixture, id: string, status: string, process = 'Order') => {
      await eventually(async () => expect((await read(host, id, process)).Status).toBe(status), {
        seconds: 20,
      })
      return read(host, id, process)
    }
    const itemOf = (run: ReadRun, step: string) =>
      run.Items.find(({ StepName }) => StepName === step)
    const act = async (host: Fixture, id: string, action: string, process = 'Order') => {
      const response = await post(host, pathOf(id, process, `/${action}`))
      expect(response.status, await response.clone().text()).toBeLessThan(300)
    }

    it('a run starts one child for each item, waits for all of them, and reads their data', async () => {
      const host = await start()
      await queue(host, '66', { lines: lines(3) })
      const run = await reached(host, '66', 'Completed')
      expect(itemOf(run, 'sum')?.Data).toEqual({
        result: { total: 3, completed: 3, failedCount: 0, failed: [] },
        data: [10, 20, 30],
      })
      expect(await read(host, '66/Order.lines/2', 'Line')).toMatchObject({
        Status: 'Completed',
        Realm: '42',
        Parent: { Process: 'Order', TransactionID: '66', ReplayID: 0, Place: 'lines' },
      })
    })

    it('children have the priority of their parent, and not its tags; an id may have 64 characters', async () => {
      const host = await start()
      const response = await post(host, '/processes/Named/transactions', {
        TransactionID: '65',
        InitialData: ['x'.repeat(64)],
        Priority: 'high',
        Tags: { season: 'spring' },
      })
      expect(response.status).toBe(202)
      await reached(host, '65', 'Completed', 'Named')
      const child = await read(host, `65/Named.lines/${'x'.repeat(64)}`, 'Line')
      expect(child).toMatchObject({ Status: 'Completed', Priority: 'high', Tags: null })
    })

    it('children whose process is not loaded wait and are named; they run when it is loaded', async () => {
      const without = await start({ processes: [order], times: { sweepMs: 500 } })
      await queue(without, '64', { lines: lines(1) })
      await eventually(async () =>
        expect(await read(without, '64')).toMatchObject({
          WaitingFor: 'children:lines',
          Children: [{ Place: 'lines', Process: 'Line', IsLoaded: false, Active: 1 }],
        }),
      )
      await without[Symbol.asyncDispose]()
      const host = await start({ times: { sweepMs: 500 } })
      expect(await reached(host, '64', 'Completed')).toMatchObject({
        Children: [{ IsLoaded: true, IdPrefix: '64/Order.lines/', Completed: 1 }],
      })
    })

    it('a run whose list is empty goes on at once', async () => {
      const host = await start()
      await queue(host, '67', { lines: [] })
      const run = await reached(host, '67', 'Completed')
      expect(itemOf(run, 'sum')?.Data).toEqual({
        result: { total: 0, completed: 0, failedCount: 0, failed: [] },
        data: [],
      })
    })

    it('a run fails if a child has failed and the others have ended; its resume resumes only the failed ones', async () => {
      const host = await start()
      world.failing.add(2)
      await queue(host, '68', { lines: lines(3) })
      const run = await reached(host, '68', 'Failed')
      expect(run.ErrorClass).toBe('children_failed')
      expect(run.LastError).toContain('1 of 3 children have not been completed (2)')
      expect(itemOf(run, 'lines')).toMatchObject({
        Status: 'Failed',
        Data: { total: 3, completed: 2, failedCount: 1, failed: ['2'] },
      })
      world.failing.clear()
      world.started.length = 0
      await act(host, '68', 'resume')
      const done = await reached(host, '68', 'Completed')
      expect(world.started).toEqual([2])
      expect(itemOf(done, 'sum')?.Data).toEqual({
        result: { total: 3, completed: 3, failedCount: 0, failed: [] },
        data: [10, 20, 30],
      })
    })

    it('a child that is resumed by itself counts again while the parent waits', async () => {
      const host = await start()
      world.failing.add(1)
      world.held.add(2)
      await queue(host, '69', { lines: lines(2) })
      await reached(host, '69/Order.lines/1', 'Failed', 'Line')
      expect((await read(host, '69')).WaitingFor).toBe('children:lines')
      world.failing.clear()
      await act(host, '69/Order.lines/1', 'resume', 'Line')
      await reached(host, '69/Order.lines/1', 'Completed', 'Line')
      world.held.clear()
      await reached(host, '69', 'Completed')
    })

    it('children take turns, in the order of the list, and as many may fail as the place tolerates', async () => {
      const host = await start()
      for (const no of [3, 5, 7]) world.failing.add(no)
      await queue(host, '70', { lines: lines(8) }, 'Slow')
      const run = await reached(host, '70', 'Completed', 'Slow')
      expect(world.most).toBe(2)
      expect(world.started.toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
      expect(itemOf(run, 'lines')?.Data).toEqual({
        total: 8,
        completed: 5,
        failedCount: 3,
        failed: ['3', '5', '7'],
      })
    })

    it('children that wait for their turn are cancelled if too many have failed; a resume starts them', async () => {
      const host = await start()
      for (const { no } of lines(12)) world.failing.add(no)
      await queue(host, '71', { lines: lines(12) }, 'Slow')
      const run = await reached(host, '71', 'Failed', 'Slow')
      expect(run.ErrorClass).toBe('children_failed')
      expect(world.started.length).toBeLessThan(12)
      expect(await read(host, '71/Slow.lines/12', 'Line')).toMatchObject({
        Status: 'Cancelled',
        ErrorClass: 'parent_ended',
      })
      world.failing.clear()
      await act(host, '71', 'resume', 'Slow')
      await reached(host, '71', 'Completed', 'Slow')
      expect(world.most).toBe(2)
    })

    it('a cancel of the parent cancels all its children, and theirs; a resume continues all of them', async () => {
      const host = await start()
      world.held.add(1)
      await queue(host, '72', [{ lines: lines(1) }, { lines: lines(2) }], 'Batch')
      await eventually(async () =>
        expect((await read(host, '72/Batch.orders/o1')).WaitingFor).toBe('children:lines'),
      )
      await act(host, '72', 'cancel', 'Batch')
      await reached(host, '72/Batch.orders/o0', 'Cancelled')
      await reached(host, '72/Batch.orders/o1', 'Cancelled')
      await reached(host, '72/Batch.orders/o1/Order.lines/1', 'Cancelled', 'Line')
      world.held.clear()
      await act(host, '72', 'resume', 'Batch')
      await reached(host, '72', 'Completed', 'Batch')
      expect(await read(host, '72/Batch.orders/o1')).toMatchObject({ Realm: '1' })
    })

    it('an existing run with the id of a child fails the parent and is left alone', async () => {
      const host = await start()
      await queue(host, '73/Order.lines/2', { no: 7 }, 'Line')
      await queue(host, '73', { lines: lines(3) })
      const run = await reached(host, '73', 'Failed')
      expect(run.ErrorClass).toBe('child_conflict')
      expect((await host.call(pathOf('73/Order.lines/1', 'Line'))).status).toBe(404)
      expect(await read(host, '73/Order.lines/2', 'Line')).not.toHaveProperty('Parent')
    })

    it('ids of items that repeat or are not valid, and data that the children refuse, fail the run before a child starts', async () => {
      const host = await start()
      const shape = '[1].id must have 1 to 64 characters'
      for (const [n, [id, message]] of (
        [
          ['1', '[1].id repeats the id of another item: 1'],
          ['', shape],
          ['x'.repeat(65), shape],
          ['a\nb', shape],
          ['NaN', shape],
        ] as const
      ).entries()) {
        await queue(host, `74-${n}`, [1, id], 'Named')
        const { ErrorClass, LastError } = await reached(host, `74-${n}`, 'Failed', 'Named')
        expect([ErrorClass, LastError]).toEqual(['step_threw', expect.stringContaining(message)])
      }
      await queue(host, '80', { lines: lines(2) }, 'Wrong')
      const run = await reached(host, '80', 'Failed', 'Wrong')
      expect(run).toMatchObject({ ErrorClass: 'input_invalid' })
      expect(run.LastError).toContain('the item 2 is not valid')
      expect(world.started).toEqual([])
    })

    it('a list longer than a page is stored page by page', async () => {
      const host = await start()
      await queue(host, '75', { lines: lines(2_300) })
      const run = await reached(host, '75', 'Completed')
      expect(itemOf(run, 'lines')?.Data).toMatchObject({ total: 2_300, completed: 2_300 })
      expect(new Set(world.started).size).toBe(2_300)
      expect(world.started).toHaveLength(2_300)
    }, 60_000)

    it('an undo of the parent undoes its completed children first', async () => {
      const host = await start()
      await queue(host, '76', { lines: lines(3) })
      await reached(host, '76', 'Completed')
      await act(host, '76', 'undo')
      const run = await reached(host, '76', 'Undone')
      expect(world.undone.toSorted((a, b) => a - b)).toEqual([1, 2, 3])
      expect(itemOf(run, 'lines')?.Status).toBe('Undone')
      expect((await read(host, '76/Order.lines/1', 'Line')).Status).toBe('Undone')
    })

    it('a replay from the place has children of its own; one from a later place copies the result', async () => {
      const host = await start()
      await queue(host, '77', { lines: lines(2) })
      await reached(host, '77', 'Completed')
      const replay = async (fromStep: string) => {
        const response = await post(host, pathOf('77', 'Order', '/replays'), { fromStep })
        expect(response.status).toBe(202)
      }
      await replay('lines')
      await eventually(async () =>
        expect(await read(host, '77')).toMatchObject({ ReplayID: 1, Status: 'Completed' }),
      )
      expect((await read(host, '77~1/Order.lines/2', 'Line')).Status).toBe('Completed')
      await replay('sum')
      await eventually(async () =>
        expect(await read(host, '77')).toMatchObject({ ReplayID: 2, Status: 'Completed' }),
      )
      expect(itemOf(await read(host, '77'), 'sum')?.Data).toMatchObject({ data: [10, 20] })
      expect(world.started).toHaveLength(4)
    })

    it('a child is not replayed by itself while its parent is active', async () => {
      const host = await start()
      world.held.add(2)
      await queue(host, '78', { lines: lines(2) })
      await reached(host, '78/Order.lines/1', 'Completed', 'Line')
      const replayed = () => post(host, pathOf('78/Order.lines/1', 'Line', '/replays'))
      const response = await replayed()
      expect(response.status).toBe(409)
      expect(((await response.json()) as { code: string }).code).toBe('parent_active')
      world.held.clear()
      await reached(host, '78', 'Completed')
      expect((await replayed()).status).toBe(202)
    })

    it('lists hide children unless they are requested, and a run shows its children', async () => {
      const host = await start()
      await queue(host, '79', { lines: lines(3) })
      await reached(host, '79', 'Completed')
      const idsOf = async (path: string) =>
        ((await (await host.call(path)).json()) as { items: { TransactionID: string }[] }).items
          .map(({ TransactionID }) => TransactionID)
          .toSorted()
      expect(await idsOf('/processes/Line/transactions')).toEqual([])
      expect(await idsOf('/processes/Line/transactions?children=true')).toEqual([
        '79/Order.lines/1',
        '79/Order.lines/2',
        '79/Order.lines/3',
      ])
      expect(await read(host, '79')).toMatchObject({
        Children: [
          { Place: 'lines', Process: 'Line', Total: 3, Completed: 3, Failed: 0, Active: 0 },
        ],
      })
      const page = await (
        await host.call(pathOf('79', 'Order', '/children?place=lines&limit=2'))
      ).json()
      expect(page).toMatchObject({
        items: [{ TransactionID: '79/Order.lines/1', Status: 'Completed' }, {}],
        next_after: 1,
      })
    })

    it('children are purged with their parent, by its retention, and erased with it', async () => {
      const host = await start({ env: { LOCAL_PULL_SECONDS: '1' } })
      await queue(host, '81', { lines: lines(2) })
      await queue(host, '82', { lines: lines(2) })
      await reached(host, '81', 'Completed')
      await reached(host, '82', 'Completed')
      const policyOf = (process: string) => ({ process, completedMs: 0, failedMs: 0 })
      const child = { Process: 'Line', TransactionID: '81/Order.lines/1', ReplayID: 0 }
      expect(await host.source.purge(policyOf('Line'), [child])).toBe(0)
      const parent = { Process: 'Order', TransactionID: '81', ReplayID: 0 }
      expect(await host.source.purge(policyOf('Order'), [parent])).toBe(1)
      await eventually(
        async () => {
          const found = await host.source.get('Line', child.TransactionID, 0)
          expect(found?.run.PurgedAt).not.toBeNull()
        },
        { seconds: 40 },
      )
      const scope = { Process: 'Order', Ids: ['82'] }
      const page = await host.source.erasable(scope, { after: null, limit: 10 })
      expect(page.runs.map(({ TransactionID }) => TransactionID).toSorted()).toEqual([
        '82',
        '82/Order.lines/1',
        '82/Order.lines/2',
      ])
    }, 60_000)

    it('a run deeper than five ancestors cannot have children', async () => {
      const leaf = defineProcess('L6').step('end', (step) => step.complete())
      const l5 = defineProcess('L5').forEach('c', leaf, { items: () => [{ id: 1, data: null }] })
      const l4 = defineProcess('L4').forEach('c', l5, { items: () => [{ id: 1, data: null }] })
      const l3 = defineProcess('L3').forEach('c', l4, { items: () => [{ id: 1, data: null }] })
      const l2 = defineProcess('L2').forEach('c', l3, { items: () => [{ id: 1, data: null }] })
      const l1 = defineProcess('L1').forEach('c', l2, { items: () => [{ id: 1, data: null }] })
      const l0 = defineProcess('L0').forEach('c', l1, { items: () => [{ id: 1, data: null }] })
      const host = await start({ processes: [l0, l1, l2, l3, l4, l5, leaf] })
      await queue(host, 'deep', null, 'L1')
      await reached(host, 'deep', 'Completed', 'L1')
      await queue(host, 'deeper', null, 'L0')
      const run = await reached(host, 'deeper', 'Failed', 'L0')
      expect(run.ErrorClass).toBe('children_failed')
    })
  })
}
