import type { Company } from './companies.ts'

const address = (id: string) => ({
  Id: id,
  Line1: '2500 Garcia Ave',
  City: 'Mountain View',
  Country: 'USA', // since October 2025 Intuit writes ISO 3166 alpha-3 codes in addresses
  CountrySubDivisionCode: 'CA',
  PostalCode: '94043',
})

/** Returns the `CompanyInfo` entity of a company, with the members that Intuit's entity has. */
export const companyInfo = ({ name }: Company) => ({
  CompanyName: name,
  LegalName: name,
  CompanyAddr: address('1'),
  CustomerCommunicationAddr: address('1'),
  LegalAddr: address('1'),
  CustomerCommunicationEmailAddr: { Address: 'books@sandbox.example' },
  PrimaryPhone: { FreeFormNumber: '(650) 555-0100' },
  CompanyStartDate: '2020-01-01',
  EmployerId: '',
  FiscalYearStartMonth: 'January',
  Country: 'US',
  Email: { Address: 'books@sandbox.example' },
  WebAddr: {},
  SupportedLanguages: 'en',
  DefaultTimeZone: 'America/Los_Angeles',
  NameValue: [
    { Name: 'NeoEnabled', Value: 'true' },
    { Name: 'IndustryType', Value: '' },
    { Name: 'SubscriptionStatus', Value: 'SUBSCRIBED' },
    { Name: 'OfferingSku', Value: 'QuickBooks Online Plus' },
  ],
  domain: 'QBO',
  sparse: false,
  Id: '1',
  SyncToken: '0',
  MetaData: {
    CreateTime: '2020-01-01T00:00:00-08:00',
    LastUpdatedTime: '2020-01-01T00:00:00-08:00',
  },
})
