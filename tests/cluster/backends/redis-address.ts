// One address that leads to the Redis primary that Sentinel names. Established connections stay where they are.
// Usage: redis-address.ts <address of a Sentinel>…
import { connect, createServer } from 'node:net'

let primary = ''
setInterval(() => {
  for (const host of process.argv.slice(2)) {
    const socket = connect({ host, port: 26379, timeout: 1_000 })
    socket.on('connect', () => socket.write('SENTINEL get-master-addr-by-name main\r\n'))
    socket.on('data', (reply) => {
      primary = /^\*2\r\n\$\d+\r\n(\S+)\r\n/.exec(String(reply))?.[1] ?? primary
      socket.destroy()
    })
    socket.on('timeout', () => socket.destroy())
    socket.on('error', () => {})
  }
}, 500)

createServer((client) => {
  const server = connect({ host: primary, port: 6379 })
  for (const socket of [client, server]) {
    socket.setNoDelay(true)
    socket.on('error', () => {})
    socket.on('close', () => [client, server].forEach((one) => one.destroy()))
  }
  client.pipe(server)
  server.pipe(client)
}).listen(6379, '0.0.0.0')
