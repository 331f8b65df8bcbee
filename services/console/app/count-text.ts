const number = new Intl.NumberFormat()

/** Returns a count with its noun in the singular or the plural, such as `1 run` or `12 runs`. */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${number.format(count)} ${count === 1 ? one : many}`
