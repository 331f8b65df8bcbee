// The client alone: undici's front door loads fetch, WebSocket and caches as well, 12 MB that are never used here.
declare module 'undici/lib/dispatcher/pool.js' {
  export { Pool as default } from 'undici'
}
