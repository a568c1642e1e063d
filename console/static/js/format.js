// Numbers, sizes, durations and times as text.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const NOTHING = "–";

export const count = (number) => (Number.isFinite(number) ? grouped.format(number) : NOTHING);

/** A number in at most four characters and a suffix: 999, 12.3k, 4.5M. */
export function short(number) {
  if (!Number.isFinite(number)) return NOTHING;
  const size = Math.abs(number);
  for (const [unit, suffix] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return trimmed(number / unit, size >= unit * 100 ? 0 : 1) + suffix;
  }
  return trimmed(number, size < 10 && size % 1 ? 1 : 0);
}

export const rate = (number) => (Number.isFinite(number) ? `${short(number)}/s` : NOTHING);

export function bytes(number) {
  if (!Number.isFinite(number)) return NOTHING;
  let unit = 0;
  while (Math.abs(number) >= 1024 && unit < 5) { number /= 1024; unit += 1; }
  return `${trimmed(number, unit && number < 100 ? 1 : 0)} ${["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

export const percent = (share) => (Number.isFinite(share) ? `${trimmed(share * 100, share < 0.1 && share > 0 ? 1 : 0)}%` : NOTHING);

/** A duration in seconds as text with its two largest units. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return NOTHING;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${trimmed(seconds * 1e6, 0)} µs`;
  if (seconds < 1) return `${trimmed(seconds * 1e3, seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${trimmed(seconds, seconds < 10 ? 1 : 0)} s`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  const [[large, largeSize], next] = [units[first], units[first + 1]];
  const rest = next ? Math.floor((seconds % largeSize) / next[1]) : 0;
  return `${Math.floor(seconds / largeSize)} ${large}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

/** The Date of a time: a text in ISO format, or a number of seconds, milliseconds, microseconds or nanoseconds since 1970. */
export function date(value) {
  if (value === null || value === undefined || value === "") return null;
  if (typeof value === "string" && !/^\d+$/.test(value)) {
    const found = new Date(value);
    return Number.isNaN(found.getTime()) ? null : found;
  }
  const number = Number(value);
  if (!number) return null;
  const found = new Date(number > 1e17 ? number / 1e6 : number > 1e14 ? number / 1e3 : number > 1e11 ? number : number * 1e3);
  return Number.isNaN(found.getTime()) ? null : found;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/** A local time: with its date, unless that is today. */
export function time(value) {
  const found = date(value);
  if (!found) return NOTHING;
  return found.toDateString() === new Date().toDateString() ? clock.format(found) : `${day.format(found)}, ${clock.format(found)}`;
}

/** A local time with milliseconds. */
export function exact(value) {
  const found = date(value);
  return found ? `${time(found)}.${String(found.getMilliseconds()).padStart(3, "0")}` : NOTHING;
}

export const clockTime = (value) => (date(value) ? minute.format(date(value)) : NOTHING);

export function ago(value) {
  const found = date(value);
  return found ? duration(Math.max(0, Math.round((Date.now() - found) / 1000))) : NOTHING;
}

/** Any value of AMQP as one line of text. */
export function text(value) {
  if (value === null || value === undefined) return NOTHING;
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** `1 message`, `2 messages`. */
export const amount = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

const DURATIONS = [[/-ms$/, 1e-3], [/(-s|-seconds|-timeout|-interval|-age|-delay|-silence|-lifetime)$/, 1]];

/** A configuration value for people: sizes, durations and lists by the name of the option. */
export function setting(name, value) {
  if (Array.isArray(value)) return value.length ? value.map(text).join(", ") : "none";
  if (value === null || value === undefined || value === "") return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return text(value);
  if (/(-bytes|-size|-limit|-memory|-reserve)$/.test(name) && value >= 1024) return bytes(value);
  const unit = DURATIONS.find(([pattern]) => pattern.test(name));
  return unit ? duration(value * unit[1]) : count(value);
}

function trimmed(number, digits) {
  const shown = number.toFixed(digits);
  return digits ? shown.replace(/\.0+$/, "") : shown;
}
