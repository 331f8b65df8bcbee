declare module '*.css'
declare module '*.md' {
  /** The address at which the console serves the document. */
  const address: string
  export default address
}
