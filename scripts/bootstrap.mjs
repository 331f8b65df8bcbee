/*
 * Runs before every npm script. A new checkout can therefore be started with one command on a machine that has only
 * Node 18 and npm. This file is plain JavaScript without dependencies.
 *
 *   node scripts/bootstrap.mjs [--dev] <entry.ts> [arguments]
 *   node scripts/bootstrap.mjs [--dev] --bin <name> [arguments]
 *
 * 1. Installs the dependencies of the lockfile if they are missing. `--dev` includes the development dependencies.
 * 2. Runs the entry, or the program of a package. If the current Node is too old, the Node that step 1 installed is
 *    used.
 */
import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { acquireLock } from './install-lock.mjs'
import { isAtLeast } from './node-version.mjs'
import { watchForOrphaning } from './npm-parent.mjs'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const modules = join(root, 'node_modules')
const stampFile = join(modules, '.installed')
const bundledNode = join(modules, 'node', 'bin', 'node')
/** @type {{ engines: { node: string } }} */
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const neededNode = manifest.engines.node.replace('>=', '')

// The longest wait for the install lock. The first install takes half a minute, or several minutes over a slow
// connection.
const lockWaitMs = 15 * 60_000

class CannotStart extends Error {
  /**
   * @param {string} message
   * @param {number} exitCode
   */
  constructor(message, exitCode = 1) {
    super(message)
    this.exitCode = exitCode
  }
}

/**
 * @typedef {{ hash: string, dev: boolean }} Stamp the hash of the installed lockfile, and whether the development
 * dependencies are installed
 */

try {
  const { dev, bin, args } = readArguments(process.argv.slice(2))
  await ensureInstalled(dev)
  const node = usableNode()
  if (node === undefined) throw new CannotStart(noNode())
  if (bin !== undefined && !existsSync(join(modules, '.bin', bin))) {
    throw new CannotStart(`No installed package has a program named ${bin}.`)
  }
  // Without `--disable-sigusr1`, SIGUSR1 would open Node's inspector, through which another process of the same
  // user could read keys and tokens.
  const [program, programArgs] =
    bin === undefined ? [node, ['--disable-sigusr1', ...args]] : [join(modules, '.bin', bin), args]
  process.exitCode = await run(program, programArgs, {
    stdio: 'inherit',
    env: {
      ...process.env,
      // The programs in node_modules/.bin, and the scripts that start these programs, use the first `node` on the PATH.
      PATH: [dirname(node), join(modules, '.bin'), process.env['PATH'] ?? ''].join(delimiter),
    },
  })
} catch (error) {
  if (!(error instanceof CannotStart)) throw error
  console.error(error.message)
  process.exitCode = error.exitCode
}

/** @param {string[]} args */
function readArguments(args) {
  const dev = args[0] === '--dev'
  const rest = dev ? args.slice(1) : args
  const [bin, ...binArgs] = rest[0] === '--bin' ? rest.slice(1) : []
  if (rest.length === 0 || (rest[0] === '--bin' && bin === undefined)) {
    throw new CannotStart('usage: bootstrap.mjs [--dev] (<entry.ts> | --bin <name>) [arguments]')
  }
  return { dev, bin, args: bin === undefined ? rest : binArgs }
}

/** @param {boolean} dev */
async function ensureInstalled(dev) {
  if (isInstalled(dev)) return
  if (Number(process.versions.node.split('.')[0]) < 18) {
    throw new CannotStart(`Node 18 or newer is needed to install; this is ${process.version}.`)
  }
  mkdirSync(modules, { recursive: true })
  const release = await acquireLock(join(modules, '.installing'), {
    waitMs: lockWaitMs,
    onWait: () => console.error('Another terminal is installing the dependencies; waiting for it…'),
  }).catch((/** @type {unknown} */ error) => {
    throw new CannotStart(`Timed out waiting for another installation: ${messageOf(error)}.`)
  })
  try {
    // The process that held the lock has most likely installed the dependencies, so they are checked before they are
    // installed again.
    if (!isInstalled(dev)) await install(dev)
  } finally {
    release()
  }
}

/**
 * Returns whether the dependencies are installed. Without `dev`, an install that includes the development dependencies
 * is accepted as well, and they are not removed.
 *
 * @param {boolean} dev
 */
function isInstalled(dev) {
  const stamp = readStamp()
  return (
    stamp !== undefined &&
    stamp.hash === currentHash() &&
    (stamp.dev || !dev) &&
    usableNode() !== undefined &&
    workspaceFolders().every(
      (folder) => !needsModules(folder) || existsSync(join(folder, 'node_modules')),
    )
  )
}

/** @param {boolean} wantsDev */
async function install(wantsDev) {
  const before = readStamp()
  // If there is no stamp file, a user may have installed the dependencies without this script. Development dependencies
  // that were installed in this way must not be removed.
  const dev = wantsDev || (before?.dev ?? existsSync(join(modules, 'vitest')))
  const hash = currentHash()
  if (before === undefined) {
    console.error('First run: installing the dependencies (about half a minute)…')
  } else if (before.hash === hash && dev && !before.dev) {
    console.error('Installing the development dependencies as well…')
  } else {
    console.error('The dependencies have changed: installing them…')
  }
  rmSync(stampFile, { force: true })
  const code = await run(
    process.execPath,
    [
      join(root, 'scripts/pnpm.mjs'),
      'install',
      '--frozen-lockfile',
      dev ? '--prod=false' : '--prod',
      // The progress output of pnpm is useful only on a terminal. If standard error is a file, pnpm prints only errors.
      ...(process.stderr.isTTY ? [] : ['--loglevel=error']),
    ],
    {
      stdio: ['ignore', 2, 2], // standard output is for the program that is started later
      // npm does not forward signals to its child processes. In a separate process group, npm and its child processes
      // can be signalled together.
      detached: true,
    },
  )
  if (code > 128) throw new CannotStart('Installing was interrupted, so nothing was started.', code)
  if (code !== 0) {
    throw new CannotStart(
      `Installing the dependencies failed (exit code ${code}), so nothing was started. The reason is above; ` +
        'without a connection to the package registry, for example, it cannot work. The next run tries again.',
    )
  }
  const node = usableNode()
  if (node === undefined || spawnSync(node, ['--version']).status !== 0) {
    throw new CannotStart(noNode())
  }
  writeFileSync(stampFile, JSON.stringify({ hash, dev }))
}

/** @returns {Stamp | undefined} */
function readStamp() {
  try {
    return JSON.parse(readFileSync(stampFile, 'utf8'))
  } catch {
    return undefined
  }
}

/** Returns a hash of every file that determines the result of an install. */
function currentHash() {
  const hash = createHash('sha256').update(`${process.platform} ${process.arch}`)
  for (const file of ['pnpm-lock.yaml', 'pnpm-workspace.yaml']) {
    hash.update(readFileSync(join(root, file)))
  }
  for (const folder of workspaceFolders()) hash.update(JSON.stringify(installRelevant(folder)))
  return hash.digest('hex')
}

/** @param {string} folder */
function installRelevant(folder) {
  const { name, packageManager, dependencies, devDependencies, optionalDependencies } = JSON.parse(
    readFileSync(join(folder, 'package.json'), 'utf8'),
  )
  return { name, packageManager, dependencies, devDependencies, optionalDependencies }
}

/** @param {string} folder */
function needsModules(folder) {
  return Object.keys(installRelevant(folder).dependencies ?? {}).length > 0
}

/**
 * Returns the folders of the root and of every workspace package. The list in pnpm-workspace.yaml contains only
 * plain folders and `folder/*`.
 */
function workspaceFolders() {
  const yaml = readFileSync(join(root, 'pnpm-workspace.yaml'), 'utf8')
  const list = /^packages:\n((?:[ ]+- .*\n)+)/m.exec(yaml)?.[1] ?? ''
  const patterns = [...list.matchAll(/- ['"]?([^'"\s]+)/g)].map((match) => match[1] ?? '')
  const folders = patterns.flatMap((pattern) => {
    if (!pattern.endsWith('/*')) return [pattern]
    const parent = pattern.slice(0, -2)
    return readdirSync(join(root, parent))
      .sort()
      .map((name) => join(parent, name))
  })
  return [root, ...folders.map((folder) => join(root, folder))].filter((folder) =>
    existsSync(join(folder, 'package.json')),
  )
}

/** @returns {string | undefined} the path of a Node that can run the TypeScript sources */
function usableNode() {
  if (isAtLeast(process.versions.node, neededNode)) return process.execPath
  return existsSync(bundledNode) ? bundledNode : undefined
}

function noNode() {
  return (
    `Node ${neededNode} or newer is needed, this is ${process.version}, and the one from the package "node" could ` +
    `not be installed for ${process.platform} ${process.arch}: install Node from https://nodejs.org and run this again.`
  )
}

/**
 * Runs a program in the repository's root until it exits, and forwards this process's signals to it.
 *
 * @param {string} program
 * @param {string[]} args
 * @param {import('node:child_process').SpawnOptions} options
 * @returns {Promise<number>} the program's exit code, or 128 + the signal's number if a signal ended the program
 */
function run(program, args, options) {
  return new Promise((resolve, reject) => {
    /** @type {NodeJS.Signals | undefined} */
    let lastForwarded
    // On Ctrl-C the terminal sends SIGINT to the child as well, because the child is in the same process group. If
    // SIGINT were also forwarded, most programs would exit at the second SIGINT instead of shutting down.
    const fromTerminal = [process.stdin, process.stdout, process.stderr].some((one) => one.isTTY)
    /** @param {NodeJS.Signals} signal */
    const forward = (signal) => {
      lastForwarded = signal
      if (options.detached) signalGroup(child, signal)
      else if (signal !== 'SIGINT' || !fromTerminal) child.kill(signal)
    }
    /** @type {NodeJS.Signals[]} */
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP']
    // The listeners are registered before the spawn. On a busy machine the child may run before `spawn` returns.
    // Without the listeners, a signal at that time would end this process and leave the child running. Node calls the
    // listeners only after `child` is assigned.
    for (const signal of signals) process.on(signal, forward)
    const orphanWatch = watchForOrphaning(() => forward('SIGTERM'))
    const stopWatching = () => {
      clearInterval(orphanWatch)
      for (const signal of signals) process.off(signal, forward)
    }
    const child = spawn(program, args, { cwd: root, ...options })
    child.on('error', (error) => {
      stopWatching()
      reject(error)
    })
    child.on('exit', (code, signal) => {
      stopWatching()
      // A signal that arrives just after the installer has exited must prevent the start of the program. Therefore a
      // forwarded signal counts as the signal that ended the installer.
      const endedBy = signal ?? (options.detached ? lastForwarded : undefined)
      resolve(endedBy === undefined ? (code ?? 1) : 128 + constants.signals[endedBy])
    })
  })
}

/**
 * @param {import('node:child_process').ChildProcess} child
 * @param {NodeJS.Signals} signal
 */
function signalGroup(child, signal) {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, signal)
  } catch {
    // The process has already exited, so there is nothing to signal.
  }
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error)
}
