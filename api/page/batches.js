// Batches: how far each is, how long still and for how much; results and what failed.

import { bar, fill, h, hours, moment, money, notice, number, span, state, table } from "./dom.js";
import { get, save, send } from "./http.js";

const ENDED = ["done", "failed", "cancelled"];
const total = (counts, states) => states.reduce((all, one) => all + (counts[one] ?? 0), 0);

export async function showBatches(root) {
  async function refresh() {
    const { items } = await get("/v1/batches?limit=50");
    const columns = [
      { title: "Batch", class: "name" }, { title: "State" }, { title: "Ended" }, { title: "Failed", number: true },
      { title: "Handed in" }, { title: "Project" },
    ];
    columns.label = "Batches";
    fill(root, h("h1", {}, "Batches"), items.length ? table(columns, items.map((one) => {
      const all = one.lines.accepted;
      const ended = total(one.counts, ENDED);
      return [h("a", { href: `#/batches/${one.id}` }, one.name), state(one.state),
        [bar(all ? ended / all : 0, `${one.name}: ended`), h("span", { class: "small quiet" }, `${number(ended)} of ${number(all)}`)],
        number(one.counts.failed), moment(one.times.created_at), one.project];
    })) : h("p", { class: "quiet" }, "No batch was handed in yet: ", h("code", {}, "spool batch submit FOLDER"), "."));
  }
  await refresh();
  return { refresh };
}

export async function showBatch(root, id) {
  let last = null;
  async function act(question, method, path, said) {
    if (question && !confirm(question)) return;
    await send(method, path);
    notice(said);
    await refresh();
  }
  async function refresh() {
    const one = await get(`/v1/batches/${id}`);
    if (JSON.stringify(one) === last) return;
    last = JSON.stringify(one);
    const all = one.lines.accepted;
    const ended = total(one.counts, ENDED);
    fill(root,
      h("h1", {}, one.name),
      h("p", { class: "row" }, state(one.state), h("span", { class: "quiet" }, `${number(ended)} of ${number(all)} jobs ended`)),
      h("p", {}, bar(all ? ended / all : 0, "Jobs ended")),
      one.held ? h("p", { class: "card" }, h("strong", {}, "Held. "), one.held.reason,
        one.held.until ? [" They go on at ", moment(one.held.until), "."] : null) : null,
      one.deadline ? h("p", {}, "Deadline ", moment(one.deadline.at), `: ${one.deadline.state.replace("_", " ")}. `,
        h("span", { class: "quiet" }, one.deadline.basis)) : null,
      h("div", { class: "tiles" },
        tile(hours(one.audio.done_seconds), "of audio done"),
        tile(one.audio.left_seconds === null ? "–" : hours(one.audio.left_seconds), "of audio left", one.audio.basis),
        tile(one.speed.rtfx_now === null ? "–" : `${number(one.speed.rtfx_now)}×`, "RTFx now"),
        tile(span(one.time.left_seconds), "until it ends", one.time.basis),
        tile(money(one.cost.billable, one.cost.currency), "so far"),
        tile(money(one.cost.expected, one.cost.currency), "expected in all", one.cost.basis)),
      h("ul", { class: "quiet small" }, [...new Set([one.audio.basis, one.time.basis, one.cost.basis])].map((basis) => h("li", {}, basis))),
      h("p", { class: "row" },
        h("button", { type: "button", onclick: () => save(`/v1/batches/${id}/results`, `${id}.jsonl`) }, "Download results (JSONL)"),
        h("button", { type: "button", disabled: !one.counts.failed,
          onclick: () => act(null, "POST", `/v1/batches/${id}/retry-failed`, "What failed is queued again.") },
        `Retry ${number(one.counts.failed)} failed`),
        h("button", { type: "button", class: "danger", disabled: one.state === "ended",
          onclick: () => act("Cancel every job of this batch that has not ended?", "DELETE", `/v1/batches/${id}`, "The batch is cancelled.") },
        "Cancel")),
      facts(one));
  }
  await refresh();
  return { refresh, live: JSON.parse(last).state === "ended" ? null : `/v1/batches/${id}/events` };
}

const tile = (value, label, title) =>
  h("div", { class: "tile", title }, h("b", {}, value), h("span", { class: "quiet small" }, label));

function facts(one) {
  const columns = [{ title: "Line", number: true }, { title: "custom_id" }, { title: "What is wrong", class: "name" }];
  columns.label = "Lines that make no job";
  return [
    h("h2", {}, "Jobs"),
    h("p", { class: "row" }, Object.entries(one.counts).map(([name, count]) => [state(name), number(count)])),
    one.reused ? h("p", { class: "quiet" }, `${number(one.reused)} took over an earlier transcript, for nothing.`) : null,
    one.bad_lines.length ? [h("h2", {}, `${number(one.lines.bad)} lines make no job`),
      table(columns, one.bad_lines.map((bad) => [number(bad.line), bad.custom_id ?? "", bad.message]))] : null,
    h("p", { class: "quiet small" }, `${one.id} · ${one.source} · project ${one.project} · handed in `, moment(one.times.created_at)),
  ];
}
