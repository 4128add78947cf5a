// Elements, and how numbers and times read. Text is only ever set as text.

export function h(name, given = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (value === true) element.setAttribute(key, "");
    else element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

export const count = (value, one, many) => `${number(value)} ${value === 1 ? one : many}`;

export function s(name, given = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) element.setAttribute(key, value);
  element.append(...children.flat());
  return element;
}

export function clock(seconds, tenths = false) {
  if (seconds === null || seconds === undefined) return "–";
  const full = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(full / 3600);
  const rest = `${two(Math.floor(full / 60) % 60)}:${two(full % 60)}`;
  const end = tenths ? `.${Math.floor((seconds - full) * 10)}` : "";
  return (hours ? `${hours}:${rest}` : rest.replace(/^0/, "")) + end;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

export function hours(seconds) {
  if (seconds && seconds < 360) return span(seconds);
  const value = (seconds ?? 0) / 3600;
  return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} h`;
}

export function money(text, currency) {
  if (text === null || text === undefined) return "–";
  const value = Number(text);
  const digits = value === 0 ? 2 : Math.min(Math.max(2, 1 - Math.floor(Math.log10(Math.abs(value)))), 8);
  return `${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits })} ${currency}`;
}

export const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : Number(value).toLocaleString("en", { maximumFractionDigits: digits });

// So many bytes of a file, both in the unit that suits the file.
export function sizes(done, all) {
  const [unit, name] = [[1e9, "GB"], [1e6, "MB"]].find(([size]) => all >= size) ?? [1e3, "kB"];
  const digits = all / unit < 10 ? 1 : 0;
  return `${number(done / unit, digits)} of ${number(all / unit, digits)} ${name}`;
}

const SHOWN = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" };

export function moment(text) {
  return text ? h("time", { datetime: text, title: text }, new Date(text).toLocaleString(undefined, SHOWN)) : "–";
}

// For tables: without seconds, and without the year where it is this one.
export function brief(text) {
  if (!text) return "–";
  const at = new Date(text);
  const year = at.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  return h("time", { datetime: text, title: at.toLocaleString(undefined, SHOWN), class: "brief" },
    at.toLocaleString(undefined, { ...SHOWN, year, second: undefined }));
}

export const state = (name) => h("span", { class: `state ${name}` }, name);

export function table(columns, rows, foot = null) {
  // On a phone each row becomes a card, and a cell says itself what it is.
  const cell = (kind, column, value) =>
    h(kind, { class: column.class ?? (column.number ? "number" : null), "data-title": column.title }, value);
  const line = (values, kind = "td") => h("tr", {}, values.map((value, at) => cell(kind, columns[at], value)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": columns.label ?? "Table" },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map((column) =>
        h("th", { scope: "col", class: column.number ? "number" : null }, column.title)))),
      h("tbody", {}, rows.map((row) => line(row))),
      foot ? h("tfoot", {}, line(foot)) : null));
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) =>
    [h("dt", {}, name), h("dd", {}, value ?? "–")]));
}

export function bar(share, label) {
  return h("progress", { max: "1", value: String(Math.min(Math.max(share, 0), 1)), "aria-label": label });
}

export function notice(text, bad = false) {
  const one = h("div", { class: `notice${bad ? " bad" : ""}` }, text);
  document.getElementById("notices").append(one);
  setTimeout(() => one.remove(), bad ? 12000 : 6000);
}
