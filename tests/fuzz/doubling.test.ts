import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { listeningUrl, startProcess } from '@integration-host/shared/test-support/start-process'
import { findTripled, type Place, tripled } from './doubling.ts'
import { placesOfEndlessResponses } from './places/endless-responses.ts'
import { placesOfLines } from './places/lines.ts'
import { placesOfMessages } from './places/messages.ts'
import { placesOfProvider } from './places/provider.ts'
import { placesOfResponses } from './places/responses.ts'
import { placesOfRoutes } from './places/routes.ts'
import { sendRaw } from './places/send-raw.ts'
import { startServices } from './places/services.ts'

/** `npm run test:all` has 20 seconds for this. `npm run test:fuzz` sets a longer time. */
const { FUZZ_SEED = '1', FUZZ_SECONDS = '20', FUZZ_PLACE = '' } = process.env

describe('the processor time of a process', () => {
  it.each([
    ['reports an expression that takes quadratic time', `text.replace(/[ \\t]+$/, '')`, true],
    ['accepts an expression that takes linear time', `text.split('\\t').join('  ')`, false],
  ])('%s', async (_, work, isReported) => {
    // The linear work is repeated, so that it also needs enough time to be judged.
    const server = `
      require('node:http').createServer((request, response) => {
        let text = ''
        request.setEncoding('latin1').on('data', (part) => (text += part)).on('end', () => {
          for (let times = 0; times < ${isReported ? 1 : 50}; times += 1) ${work}
          response.end()
        })
      }).listen(0, '127.0.0.1', function () {
        console.log(JSON.stringify({ url: 'http://127.0.0.1:' + this.address().port, msg: 'service is listening' }))
      })`
    await using started = startProcess(['--eval', server])
    const url = await listeningUrl(started)
    const place: Place = {
      name: 'body',
      process: started,
      syntax: 'text',
      lengths: [15_000, 60_000],
      send: (text) =>
        sendRaw(
          url,
          `POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ${text.length}\r\n\r\n${text}`,
        ),
    }

    const fault = await tripled(place, {
      syntax: 'text',
      before: '',
      fragment: '\t',
      after: '!',
    })

    if (isReported) expect(fault).toContain('ms of processor time')
    else expect(fault).toBeNull()
  })
})

describe('each door of each service', () => {
  let places: readonly Place[]
  const opened = new AsyncDisposableStack()
  beforeAll(async () => {
    const services = opened.use(await startServices())
    places = [
      ...services.all.flatMap(placesOfRoutes),
      ...services.all.flatMap(placesOfLines),
      ...(await placesOfMessages(services.system, opened)),
      ...(await placesOfResponses(opened)),
      ...(await placesOfProvider(opened)),
      ...(await placesOfEndlessResponses(opened)),
    ].filter(({ name }) => name.includes(FUZZ_PLACE))
  }, 180_000)
  afterAll(() => opened.disposeAsync())

  it(
    'needs at most three times the processor time for an input of twice the length',
    async () => {
      const seed = Number(FUZZ_SEED)
      const seconds = Number(FUZZ_SECONDS)
      const { tried, isWhole, faults } = await findTripled(places, { seed, seconds })
      console.log(
        `fuzz target doubling: ${tried} repetitions at ${places.length} places, seed ${seed}${isWhole ? ', all of them' : ''}`,
      )
      expect(
        faults,
        `to repeat one: npm run test:fuzz -- --target doubling --seed ${seed} --place <its name>`,
      ).toEqual([])
    },
    (Number(FUZZ_SECONDS) + 120) * 1_000,
  )
})
