export { default } from '../../../examples/invoice-process.ts'
