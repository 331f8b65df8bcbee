import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'

interface Service {
  readonly image: string
  readonly profiles?: readonly string[]
  readonly ports?: readonly string[]
  readonly volumes?: readonly string[]
  readonly networks?: readonly string[]
  readonly read_only?: boolean
}
const root = join(import.meta.dirname, '..')
const { services, volumes } = parse(readFileSync(join(root, 'docker-compose.yml'), 'utf8'), {
  merge: true,
}) as {
  readonly services: Readonly<Record<string, Service>>
  readonly volumes: Readonly<Record<string, unknown>>
}
const all = Object.entries(services)
const monitoring = all.filter(([, { profiles }]) => profiles?.includes('monitoring') === true)

describe('the compose file', () => {
  it('publishes ports on loopback only', () => {
    const ports = all.flatMap(([, service]) => service.ports ?? [])
    expect(ports.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([])
    expect(new Set(ports).size).toBe(ports.length)
  })

  it('mounts files of this repository that are there, and volumes that it declares', () => {
    const sources = all.flatMap(([, service]) =>
      (service.volumes ?? []).map((volume) => volume.split(':')[0] ?? ''),
    )
    const missing = sources.filter((source) =>
      source.startsWith('./') ? !existsSync(join(root, source)) : !(source in volumes),
    )
    expect(missing).toEqual([])
  })
})

describe('its monitoring profile', () => {
  it('has Prometheus and Grafana, each pinned to one version', () => {
    expect(monitoring.map(([name]) => name)).toEqual(['prometheus', 'grafana'])
    for (const [, { image }] of monitoring) expect(image).toMatch(/:v?\d+\.\d+\.\d+$/)
  })

  it('sees no store, and writes to nothing but its own volume', () => {
    for (const [, service] of monitoring) {
      expect(service.networks).toEqual(['edge'])
      expect(service.read_only).toBe(true)
      for (const volume of service.volumes ?? [])
        expect(volume).toMatch(/^(?:\.\/deploy\/.*:ro|prometheus-data:\/prometheus)$/)
    }
  })

  it('scrapes every service that has figures, at the port where it listens', () => {
    const { scrape_configs: jobs } = parse(
      readFileSync(join(root, 'deploy/prometheus/prometheus.yml'), 'utf8'),
    ) as {
      scrape_configs: {
        job_name: string
        dns_sd_configs?: { names: string[]; port: number }[]
        static_configs?: { targets: string[] }[]
      }[]
    }
    for (const {
      job_name: job,
      dns_sd_configs: byName = [],
      static_configs: byHost = [],
    } of jobs) {
      const scraped = [
        ...byName.flatMap(({ names, port }) => names.map((name) => `${name}:${port}`)),
        ...byHost.flatMap(({ targets }) => targets),
      ]
      const published = services[job]?.ports?.[0]?.split(':').at(-1)
      expect(scraped).toEqual([`${job}:${published}`])
    }
    expect(jobs.map(({ job_name: job }) => job)).toEqual([
      'token-service',
      'accounting-gateway',
      'coordinator',
      'demo-api',
    ])
  })
})
