// The costs of a period: a chart and the same numbers as a table, by day or another group.

import { fill, h, hours, money, number, price, s, table } from "./dom.js";
import { get, save } from "./http.js";
import { places } from "./system.js";

const GROUPS = ["day", "project", "model", "worker", "pool", "key", "batch", "tag"];
const STATES = { within: "done", near: "draining", over: "failed" };
const day = (date) => date.toISOString().slice(0, 10);

export async function showCosts(root, query) {
  const tomorrow = new Date(Date.now() + 864e5);
  const from = query.get("from") ?? day(new Date(Date.now() - 29 * 864e5));
  const to = query.get("to") ?? day(tomorrow);
  const group = query.get("by") ?? "day";
  const asked = new URLSearchParams({ from, to, group_by: group });
  const tag = query.get("tag") ?? "";
  if (group === "tag" && tag) asked.set("tag", tag);
  if (group === "tag" && !tag) asked.set("group_by", "day");
  const report = await get(`/v1/costs?${asked}`);
  const field = (name, value) => h("label", { class: "inline" }, name,
    h("input", { type: "date", value, required: true, name: name.toLowerCase() }));
  const form = h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    location.hash = `#/costs?${new URLSearchParams(["from", "to", "by", "tag"].map((name) => [name, given.get(name)]))}`;
  } }, field("From", from), field("To", to),
  h("label", { class: "inline" }, "By", h("select", { name: "by" },
    GROUPS.map((name) => h("option", { value: name, selected: name === group }, name)))),
  h("label", { class: "inline" }, "Tag", h("input", { name: "tag", value: tag, size: "10", placeholder: "name" })),
  h("button", {}, "Show"));
  const { currency } = report;
  const cells = (row, name) => [name, hours(row.audio_seconds), hours(row.engine_seconds),
    row.rtfx === null ? "–" : number(row.rtfx, 1), money(row.billable, currency), money(row.wasted, currency),
    price(row.per_audio_hour, currency)];
  const columns = [{ title: group[0].toUpperCase() + group.slice(1), class: "name" },
    ...["Audio", "Engine", "RTFx", "Billable", "Wasted", "Per audio hour"].map((title) => ({ title, number: true }))];
  columns.label = "Costs";
  const rows = [...report.rows].sort((one, other) => one.key.localeCompare(other.key));
  fill(root, h("h1", {}, "Costs"), places("#/costs"), form,
    report.rows.length ? plot(group === "day" ? everyDay(rows, from, to) : rows, currency, group, document.body.clientWidth) : h("p", { class: "quiet" }, "Nothing was transcribed in this period."),
    table(columns, rows.map((row) => cells(row, row.key || "–")), cells(report.total, "Total")),
    report.idle_cost === null || report.idle_cost === undefined ? null
      : h("p", { class: "quiet" }, `Idle workers: ${hours(report.idle_seconds)}, ${money(report.idle_cost, currency)}.`),
    report.budgets.length ? [h("h2", {}, "Budgets this month"), report.budgets.map((one) => h("p", { class: `state ${STATES[one.state]}` },
      `${one.project}: ${money(one.spent, currency)} of ${money(one.budget, currency)}${one.share === null ? "" : `, ${Math.round(one.share * 100)} %`}`))] : null,
    projection(report),
    h("p", { class: "row" }, ["csv", "svg"].map((form) => h("button", { type: "button",
      onclick: () => save(`/v1/costs?${asked}&format=${form}`, `costs-${from}-${to}.${form}`) }, `Download ${form.toUpperCase()}`))));
}

function projection({ projection: one, currency }) {
  if (!one) return null;
  const columns = [{ title: "Service", class: "name" }, { title: "Per hour of audio", number: true }, { title: "Per million hours", number: true }];
  columns.label = "Cost per hour and per million hours of audio";
  return [h("h2", {}, "Compared with cloud services"), table(columns, [["This system", price(one.per_audio_hour, currency), money(one.per_million_hours, currency)],
    ...one.clouds.map((cloud) => [cloud.name, price(cloud.per_audio_hour, one.clouds_currency), money(cloud.per_million_hours, one.clouds_currency)])]),
  h("p", { class: "quiet small" }, `This system: ${one.basis} Others: list prices of ${one.clouds_as_of}.`)];
}

function everyDay(rows, from, to) {
  const byDay = new Map(rows.map((row) => [row.key, row]));
  const days = [];
  for (let at = Date.parse(from); at < Date.parse(to) && days.length < 400; at += 864e5) {
    const key = day(new Date(at));
    days.push(byDay.get(key) ?? { key, billable: "0", wasted: "0" });
  }
  return days;
}

function plot(rows, currency, group, room) {
  const shown = group === "day" ? rows : [...rows].sort((a, b) => Number(b.billable) - Number(a.billable)).slice(0, 24);
  // Not scaled down, so that the numbers can be read on a phone too.
  const width = Math.min(Math.max(room - 80, 280), 720), height = 240, left = 76, bottom = 30, top = 10;
  const highest = Math.max(...shown.map((row) => Number(row.billable) + Number(row.wasted)), 1e-12);
  const step = nice(highest / 4);
  const most = Math.ceil(highest / step) * step;
  const y = (value) => top + (height - top - bottom) * (1 - value / most);
  const each = (width - left - 8) / shown.length;
  const image = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img", width: "100%",
    "aria-label": `Cost by ${group}; the table below has the numbers` });
  for (let value = 0; value <= most * 1.0001; value += step) {
    image.append(s("line", { x1: left, x2: width, y1: y(value), y2: y(value), class: "grid" }),
      s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, price(String(+value.toPrecision(6)), "").trim()));
  }
  const every = Math.ceil(shown.length / Math.floor(width / 72));
  shown.forEach((row, at) => {
    const [billable, wasted] = [Number(row.billable), Number(row.wasted)];
    const x = left + at * each + each * 0.12;
    const title = s("title", {}, `${row.key || "–"}: ${money(row.billable, currency)}, wasted ${money(row.wasted, currency)}`);
    image.append(s("g", {}, title,
      s("rect", { x, width: each * 0.76, y: y(billable), height: y(0) - y(billable), class: "bar1" }),
      s("rect", { x, width: each * 0.76, y: y(billable + wasted), height: y(billable) - y(billable + wasted), class: "bar2" })));
    if (at % every === 0) {
      const name = group === "day" ? row.key.slice(5) : (row.key || "–").slice(0, 12);
      image.append(s("text", { x: x + each * 0.38, y: height - 10, "text-anchor": "middle" }, name));
    }
  });
  return h("figure", { class: "card" }, image,
    h("figcaption", { class: "row small" }, h("span", { class: "key" }, "billable"), h("span", { class: "key second" }, "wasted"),
      h("span", { class: "quiet" }, currency)));
}

function nice(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
}
