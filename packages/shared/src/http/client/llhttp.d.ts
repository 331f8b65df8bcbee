declare module 'undici/lib/llhttp/llhttp_simd-wasm.js' {
  /** llhttp, compiled. */
  const wasm: Buffer
  export default wasm
}

// The types of Node know no more of it than its name.
declare namespace WebAssembly {
  const Module: new (bytes: Uint8Array) => object
  const Instance: new (
    module: object,
    imports: Record<string, Record<string, (...args: number[]) => number>>,
  ) => { readonly exports: unknown }
}
