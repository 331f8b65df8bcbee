import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { defineProcess, secret, z } from '../../step/api.ts'
import { processOf } from '../../../test-support/process-of.ts'
import { createSettingsReader, variableOf } from './process-settings.ts'

const invoiceExport = defineProcess('InvoiceExport', {
  settings: {
    erpUrl: z.url(),
    erpKey: secret(),
    batch: z.coerce.number().int().default(10),
    region: z.string().optional(),
  },
  targets: ({ erpUrl, erpKey }) => ({ erp: { url: erpUrl, auth: { bearer: erpKey } } }),
}).step('one', (step) => step.complete())
const URL_AND_KEY = {
  INVOICE_EXPORT_ERP_URL: 'https://erp.example',
  INVOICE_EXPORT_ERP_KEY: 'erp-key-1',
}
const faultsOf = (read: ReturnType<ReturnType<typeof createSettingsReader>>): readonly string[] =>
  'faults' in read ? read.faults : []

describe('the settings of a process', () => {
  it.each([
    ['InvoiceExport', 'erpUrl', 'INVOICE_EXPORT_ERP_URL'],
    ['Order', 'x', 'ORDER_X'],
    ['HTTPExport', 'erpURL', 'HTTP_EXPORT_ERP_URL'],
    ['nightly-sync_2', 'oauth2Key', 'NIGHTLY_SYNC_2_OAUTH2_KEY'],
  ])(
    'for the process %s, the setting %s is read from the environment variable %s',
    (process, setting, variable) => {
      expect(variableOf(process, setting)).toBe(variable)
    },
  )

  it('process settings are read from environment variables that begin with the name of the process, or from files that such variables name', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'settings-'))
    try {
      await writeFile(join(folder, 'key'), 'erp-key-1\n')
      const read = createSettingsReader(
        {
          INVOICE_EXPORT_ERP_URL: 'https://erp.example',
          INVOICE_EXPORT_ERP_KEY_FILE: join(folder, 'key'),
          INVOICE_EXPORT_REGION: '',
        },
        [],
      )(invoiceExport)
      expect(read).toMatchObject({
        bound: { values: { erpUrl: 'https://erp.example', batch: 10 } },
      })
      const target = 'bound' in read ? read.bound?.targets.get('erp') : undefined
      expect(target?.auth?.value.reveal()).toBe('Bearer erp-key-1')
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it('all wrong and missing settings of a process are reported, without their values', () => {
    const read = createSettingsReader(
      {
        INVOICE_EXPORT_ERP_URL: 'value-1',
        INVOICE_EXPORT_BATCH: 'value-2',
        INVOICE_EXPORT_REGION: 'value-3',
        INVOICE_EXPORT_REGION_FILE: '/value-4',
      },
      [],
    )(invoiceExport)
    expect(faultsOf(read)).toEqual([
      'INVOICE_EXPORT_ERP_URL: Invalid URL',
      'INVOICE_EXPORT_ERP_KEY: is missing',
      'INVOICE_EXPORT_BATCH: Invalid input: expected number, received NaN',
      'INVOICE_EXPORT_REGION_FILE: is set beside INVOICE_EXPORT_REGION; keep one',
    ])
  })

  it('a setting whose schema throws and a target that cannot be called are reported without their values', () => {
    const throwing = defineProcess('A', {
      settings: {
        x: z.string().transform((value): string => {
          throw new Error(value)
        }),
      },
    }).step('one', (step) => step.complete())
    expect(faultsOf(createSettingsReader({ A_X: 'value-1' }, [])(throwing))).toEqual([
      'A_X: its schema cannot check a value',
    ])
    const env = { ...URL_AND_KEY, INVOICE_EXPORT_ERP_URL: 'ftp://value-1' }
    expect(faultsOf(createSettingsReader(env, [])(invoiceExport))).toEqual([
      'process InvoiceExport: target erp: url must be an http(s) URL',
    ])
  })

  it('a process may not declare a setting whose variable belongs to the coordinator or to another setting', () => {
    const of = (name: string, settings: readonly string[]) =>
      processOf(name, {
        settings: Object.fromEntries(settings.map((setting) => [setting, z.string()])),
        steps: { one: () => {} },
      })
    const env = { AMQP_URL: 'amqp://u:p@h', INVOICE_EXPORT_KEY: 'k' }
    const read = createSettingsReader(env, ['AMQP_URL', 'AMQP_CA_FILE'])
    expect(faultsOf(read(of('Amqp', ['url', 'caFile', 'urlFile'])))).toEqual([
      'AMQP_URL: AMQP_URL belongs to the coordinator',
      'AMQP_CA_FILE: AMQP_CA_FILE belongs to the coordinator',
      'AMQP_URL_FILE: AMQP_URL_FILE belongs to the coordinator',
    ])
    expect(faultsOf(read(of('InvoiceExport', ['key'])))).toEqual([])
    expect(faultsOf(read(of('Invoice', ['exportKey', 'exportKeyFile'])))).toEqual([
      'INVOICE_EXPORT_KEY: INVOICE_EXPORT_KEY belongs to the setting key of InvoiceExport',
      'INVOICE_EXPORT_KEY_FILE: INVOICE_EXPORT_KEY_FILE belongs to the setting key of InvoiceExport',
    ])
  })
})
