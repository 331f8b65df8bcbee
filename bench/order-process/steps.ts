/**
 * The work of the three steps. All engines run these steps, which do the same as the steps of the coordinator's
 * OrderProcess.
 */
import { randomUUID } from 'node:crypto'
import { mkdir, open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { Agent, request } from 'undici'
import type { EngineSettings } from './engine.ts'

export interface Order {
  readonly Order: string
  readonly CreatedAt: string
}
export interface Report extends Order {
  readonly Status: string
}
export interface Steps {
  order(id: string): Promise<Order>
  report(order: Order): Promise<Report>
  /** Writes the CSV file and resolves with the name of the file. */
  csv(id: string, report: Report): Promise<string>
}

export function createSteps({ stubUrl, dataDir }: EngineSettings): Steps {
  const agent = new Agent({ connections: 128 })
  async function get<Body>(path: string, query: Readonly<Record<string, string>>) {
    const url = `${stubUrl}${path}?${new URLSearchParams(query).toString()}`
    const { statusCode, body } = await request(url, { dispatcher: agent })
    const json = (await body.json()) as Body
    if (statusCode >= 300) throw new Error(`${path} responded with ${statusCode}`)
    return json
  }
  const folder = join(dataDir, 'OrderCSV')
  const folderMade = mkdir(folder, { recursive: true })
  return {
    order: (id) => get<Order>('/order', { order: `O-${id}` }),
    report: ({ Order, CreatedAt }) => get<Report>('/report', { order: Order, created: CreatedAt }),
    async csv(id, { Order, CreatedAt, Status }) {
      await folderMade
      const name = `Order_${id}.0.csv`
      await writeWholeFile(
        folder,
        name,
        `Order,CreatedAt,Status\n${Order},${CreatedAt},${Status}\n`,
      )
      return name
    },
  }
}

/** Writes as durably as the coordinator: flushes the file with fsync, renames the file, then flushes the folder. */
async function writeWholeFile(folder: string, name: string, content: string): Promise<void> {
  const temporary = join(folder, `${name}.${randomUUID().slice(0, 8)}.tmp`)
  await using file = await open(temporary, 'wx')
  await file.writeFile(content)
  await file.sync()
  await rename(temporary, join(folder, name))
  await using place = await open(folder, 'r')
  await place.sync()
}
