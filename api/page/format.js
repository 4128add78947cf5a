// Numbers, times and money as people write them, in the reader's language and time zone.

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

export const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : Number(value).toLocaleString("en", { maximumFractionDigits: digits });

export const count = (value, one, many) => `${number(value)} ${value === 1 ? one : many}`;

// A place in a recording.
export function clock(seconds, tenths = false) {
  if (seconds === null || seconds === undefined) return "–";
  const full = Math.floor(seconds);
  const two = (value) => String(value).padStart(2, "0");
  const hours = Math.floor(full / HOUR);
  const rest = `${two(Math.floor(full / MINUTE) % 60)}:${two(full % 60)}`;
  const end = tenths ? `.${Math.floor((seconds - full) * 10)}` : "";
  return (hours ? `${hours}:${rest}` : rest.replace(/^0/, "")) + end;
}

const WRITTEN = /^(?:(?:(\d+):)?(\d{1,2}):)?(\d+(?:\.\d+)?)$/;

// Seconds of "12:30", "1:02:03" or "750"; null for anything else.
export function seconds(text) {
  const match = WRITTEN.exec(text.trim());
  return match && Number(match[1] ?? 0) * HOUR + Number(match[2] ?? 0) * MINUTE + Number(match[3]);
}

// How long something takes: "45 s", "12 min", "2 h 14 min", "3 days".
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${seconds < 10 ? Number(seconds.toFixed(1)) : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / MINUTE);
  if (minutes < 60) return `${minutes} min`;
  if (seconds < 2 * DAY) return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes / 60} h`;
  return count(Math.round(seconds / DAY), "day", "days");
}

// How much audio there is: hours, however many.
export function hours(seconds) {
  return (seconds ?? 0) < 100 * HOUR ? span(seconds ?? 0) : `${number(seconds / HOUR)} h`;
}

export function left(seconds) {
  if (seconds === null || seconds === undefined) return "time left not known yet";
  if (seconds < 90) return seconds < 45 ? "less than a minute left" : "about a minute left";
  return `${span(seconds)} left`;
}

export function money(text, currency) {
  if (text === null || text === undefined) return "–";
  const value = Number(text);
  if (value > 0 && value < 0.01) return `less than 0.01 ${currency}`;
  return `${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })} ${currency}`;
}

// What an hour of audio costs is compared, so it keeps two digits however small it is.
export function price(text, currency) {
  if (text === null || text === undefined) return "–";
  const value = Number(text);
  const digits = value === 0 ? 2 : Math.min(Math.max(2, 1 - Math.floor(Math.log10(Math.abs(value)))), 8);
  return `${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits })} ${currency}`;
}

function scale(bytes) {
  const [unit, name] = [[1e9, "GB"], [1e6, "MB"]].find(([size]) => bytes >= size) ?? [1e3, "kB"];
  return { unit, name, digits: bytes / unit < 10 ? 1 : 0 };
}

export function size(bytes) {
  const { unit, name, digits } = scale(bytes);
  return `${number(bytes / unit, digits)} ${name}`;
}

// So many bytes of a file, both in the unit that suits the file.
export function sizes(done, all) {
  const { unit, name, digits } = scale(all);
  return `${number(done / unit, digits)} of ${number(all / unit, digits)} ${name}`;
}

const SHOWN = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };

export const dateTime = (text) => new Date(text).toLocaleString(undefined, { ...SHOWN, second: "2-digit", timeZoneName: "short" });

// Without the year if it is this one.
export function shortDateTime(text) {
  const at = new Date(text);
  return at.toLocaleString(undefined, { ...SHOWN, year: at.getFullYear() === new Date().getFullYear() ? undefined : "numeric" });
}

export const day = (text) => new Date(text).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });

const names = new Intl.DisplayNames(undefined, { type: "language" });

export function language(code) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}
