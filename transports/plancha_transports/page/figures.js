/** Numbers as people read them. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function count(number) {
  return whole.format(number);
}

export function rate(number) {
  return number < 100 ? tenths.format(number) : whole.format(number);
}

export function percent(share) {
  return `${tenths.format(share * 100)} %`;
}

/** "1 block", "12 blocks" */
export function several(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** @param {number | null} seconds */
export function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 0.01) return `${tenths.format(seconds * 1000)} ms`;
  if (seconds < 1) return `${whole.format(seconds * 1000)} ms`;
  if (seconds < 60) return `${tenths.format(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}
