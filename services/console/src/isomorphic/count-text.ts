const format = new Intl.NumberFormat('en')

/** Returns a number as the pages show it, such as `1,200`. The pages are in English, whatever the browser's language is. */
export const numberText = (value: number): string => format.format(value)

/** Returns a count with its noun in the singular or the plural, such as `1 run` or `12 runs`. */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${numberText(count)} ${count === 1 ? one : many}`
