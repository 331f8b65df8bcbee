declare module 'undici/lib/llhttp/llhttp_simd-wasm.js' {
  /** llhttp compiled to WebAssembly. */
  const wasm: Buffer
  export default wasm
}

// The types of Node declare the name of this namespace only.
declare namespace WebAssembly {
  const Module: new (bytes: Uint8Array) => object
  const Instance: new (
    module: object,
    imports: Record<string, Record<string, (...args: number[]) => number>>,
  ) => { readonly exports: unknown }
}
