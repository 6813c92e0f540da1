// Numbers, sizes and times as text.

const whole = new Intl.NumberFormat("en-US");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function count(value) {
  return value === null || value === undefined ? "–" : typeof value === "bigint" || Number.isInteger(value) ? whole.format(value) : value.toFixed(1);
}

/** A number with what it counts: 1 rule, 2 rules. */
export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function compact(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value >= 100 || Number.isInteger(value) ? whole.format(Math.round(value)) : value.toFixed(1);
}

export function bytes(value) {
  if (value === null || value === undefined || value < 0) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 2 : 1)} ${UNITS[unit]}`;
}

export function rate(value, text = compact) {
  if (value === null) return "–";
  return value ? `${text(value)}/s` : "0/s";
}

export function byteRate(value) {
  return value ? `${bytes(Math.round(value))}/s` : "0/s";
}

const isDate = (ms) => !Number.isNaN(new Date(Number(ms)).getTime());

/** A time in milliseconds, a number or decimal text: -1 is none, and beyond the dates of JavaScript it is shown as it is. */
export function time(ms) {
  if (Number(ms) === -1) return "–";
  if (!isDate(ms)) return `${ms} ms`;
  const moment = new Date(Number(ms));
  const pad = (number, size = 2) => String(number).padStart(size, "0");
  return `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())} ${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}.${pad(moment.getMilliseconds(), 3)}`;
}

/** The offset of local times, as in UTC+02:00, at a moment or now. */
export function zone(ms = Date.now()) {
  const minutes = -new Date(Number(ms)).getTimezoneOffset();
  const pad = (number) => String(number).padStart(2, "0");
  return `UTC${minutes < 0 ? "−" : "+"}${pad(Math.floor(Math.abs(minutes) / 60))}:${pad(Math.abs(minutes) % 60)}`;
}

/** A time with the offset of its time zone. */
export function timeWithZone(ms) {
  return Number(ms) !== -1 && isDate(ms) ? `${time(ms)} ${zone(ms)}` : time(ms);
}

/** A time for other programs: ISO 8601, or the number itself if it is no date. */
export function isoTime(ms) {
  return Number(ms) !== -1 && isDate(ms) ? new Date(Number(ms)).toISOString() : String(ms);
}

/** The present time of day. */
export function clock() {
  return new Date().toLocaleTimeString("en-GB");
}

export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${ms % 1000 ? (ms / 1000).toFixed(1) : ms / 1000} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${ms % 3_600_000 ? (ms / 3_600_000).toFixed(1) : ms / 3_600_000} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

const LARGEST = ["9223372036854775807", "2147483647"];

/** What the value of a setting means to people: a duration, a size, or that it is the largest one. Empty: as it is. */
export function meaning(name, value) {
  if (LARGEST.includes(value)) return "largest possible";
  if (!/^\d+$/.test(value ?? "") || Number(value) < 1000) return "";
  if (name.endsWith(".ms")) return duration(Number(value));
  return name.endsWith(".bytes") ? bytes(Number(value)) : "";
}

export function milliseconds(value) {
  return value < 10 ? `${value.toFixed(2)} ms` : value < 1000 ? `${value.toFixed(0)} ms` : `${(value / 1000).toFixed(1)} s`;
}

/** The difference of two offsets, which are decimal strings. */
export function span(start, end) {
  return start === null || end === null ? null : BigInt(end) - BigInt(start);
}
