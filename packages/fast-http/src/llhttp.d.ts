declare module 'undici/lib/llhttp/llhttp_simd-wasm.js' {
  /** llhttp compiled to WebAssembly. */
  const wasm: Buffer
  export default wasm
}

// Node's type definitions contain only the name of the namespace `WebAssembly`, so the members in use are declared
// here.
declare namespace WebAssembly {
  const Module: new (bytes: Uint8Array) => object
  const Instance: new (
    module: object,
    imports: Record<string, Record<string, (...args: number[]) => number>>,
  ) => { readonly exports: unknown }
}
