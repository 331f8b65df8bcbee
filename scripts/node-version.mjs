/*
 * Compares versions of Node. This file is plain JavaScript, because it must run on versions of Node that
 * cannot run TypeScript.
 */

/**
 * @param {string} version
 * @param {string} minimum `major.minor`
 */
export function isAtLeast(version, minimum) {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const [wantedMajor = 0, wantedMinor = 0] = minimum.split('.').map(Number)
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor)
}
