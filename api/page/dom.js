// Elements. Text is only ever set as text; `format.js` says how numbers and times read.

import { dateTime, shortDateTime } from "./format.js";

export * from "./format.js";

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

export function s(name, given = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) element.setAttribute(key, value);
  element.append(...children.flat());
  return element;
}

export function moment(text) {
  return text ? h("time", { datetime: text, title: text }, dateTime(text)) : "–";
}

// For tables.
export function brief(text) {
  return text ? h("time", { datetime: text, title: dateTime(text), class: "brief" }, shortDateTime(text)) : "–";
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
