import { asObject } from '@integration-host/shared/json'

type Body = Readonly<Record<string, unknown>>

/** The preferences of the companies. They are the same for every company until a person edits them. */
export function createPreferences() {
  const edited = new Map<string, Body>()
  const of = (realm: string): Body => edited.get(realm) ?? INITIAL
  return {
    of,
    /** Replaces members of the preferences. Members of a group that `change` does not name are kept. */
    edit(realm: string, change: Body, now: Date): Body {
      const before = of(realm)
      const groups: [string, unknown][] = Object.entries(change).map(([name, group]) => {
        const members = asObject(group)
        return [name, members === null ? group : { ...asObject(before[name]), ...members }]
      })
      const after: Body = {
        ...before,
        ...Object.fromEntries(groups),
        Id: '1',
        SyncToken: String(Number(before['SyncToken']) + 1),
        MetaData: { ...asObject(before['MetaData']), LastUpdatedTime: now.toISOString() },
      }
      edited.set(realm, after)
      return after
    },
    /** Returns the day on which the books of the company were closed, such as `2026-10-31`; `null` if they are open. */
    closedUntil(realm: string): string | null {
      const date = asObject(of(realm)['AccountingInfoPrefs'])?.['BookCloseDate']
      return typeof date === 'string' ? date : null
    },
    reset: () => edited.clear(),
  }
}
export type Preferences = ReturnType<typeof createPreferences>

/** The `Preferences` entity, with the members of Intuit's entity that clients usually read. */
const INITIAL: Body = {
  AccountingInfoPrefs: {
    FirstMonthOfFiscalYear: 'January',
    UseAccountNumbers: false,
    TaxYearMonth: 'January',
    ClassTrackingPerTxn: false,
    ClassTrackingPerTxnLine: false,
    TrackDepartments: false,
    CustomerTerminology: 'Customers',
  },
  ProductAndServicesPrefs: { ForSales: true, ForPurchase: true, QuantityOnHand: false },
  SalesFormsPrefs: {
    CustomTxnNumbers: false,
    AllowDeposit: false,
    AllowDiscount: true,
    AllowEstimates: true,
    AllowShipping: false,
    AutoApplyCredit: true,
  },
  EmailMessagesPrefs: {},
  VendorAndPurchasesPrefs: { TrackingByCustomer: false, BillableExpenseTracking: false },
  TimeTrackingPrefs: { UseServices: false, BillCustomers: false, WorkWeekStartDate: 'Monday' },
  TaxPrefs: { UsingSalesTax: false },
  CurrencyPrefs: { MultiCurrencyEnabled: false, HomeCurrency: { value: 'USD' } },
  ReportPrefs: { ReportBasis: 'Accrual', CalcAgingReportFromTxnDate: false },
  OtherPrefs: { NameValue: [] },
  domain: 'QBO',
  sparse: false,
  Id: '1',
  SyncToken: '0',
  MetaData: {
    CreateTime: '2020-01-01T00:00:00-08:00',
    LastUpdatedTime: '2020-01-01T00:00:00-08:00',
  },
}
