// Batches: progress, remaining time and cost; results and failures.

import { bar, brief, count, fill, h, hours, moment, money, notice, number, span, state, table } from "./dom.js";
import { get, save, send } from "./http.js";
import { jobTable } from "./jobs.js";
import { FORMATS } from "./transcript.js";

const ENDED = ["done", "failed", "cancelled"];
const total = (counts, states) => states.reduce((all, one) => all + (counts[one] ?? 0), 0);


export async function showBatches(root) {
  async function refresh() {
    const { items } = await get("/v1/batches?limit=50");
    const columns = [
      { title: "Batch", class: "name" }, { title: "State" }, { title: "Ended" }, { title: "Failed", number: true },
      { title: "Submitted" }, { title: "Project" },
    ];
    columns.label = "Batches";
    fill(root, h("h1", {}, "Batches"), items.length ? table(columns, items.map((one) => {
      const all = one.lines.accepted;
      const ended = total(one.counts, ENDED);
      return [h("a", { href: `#/batches/${one.id}` }, one.name), state(one.state),
        [bar(all ? ended / all : 0, `${one.name}: ended`), h("span", { class: "small quiet" }, `${number(ended)} of ${number(all)}`),
        one.lines.bad ? h("div", { class: "small" }, h("strong", {}, count(one.lines.bad, "invalid line", "invalid lines"))) : null],
        one.counts.failed ? h("a", { href: failedOf(one) }, number(one.counts.failed)) : "0", brief(one.times.created_at), one.project];
    })) : h("p", { class: "quiet" }, "No batches yet. Submit one with ", h("code", {}, "spool batch submit FOLDER"), "."));
  }
  await refresh();
  return { refresh };
}

export async function showBatch(root, id) {
  let last = null;
  let ended = false;
  const form = h("select", { "aria-label": "Format of the transcripts" }, [...FORMATS, "rttm", "lattice", "kaldi"].map((name) => h("option", {}, name)));
  async function act(question, method, path, message) {
    if (question && !confirm(question)) return;
    await send(method, path);
    notice(message);
    await refresh();
  }
  async function refresh() {
    const [one, latest] = await Promise.all([get(`/v1/batches/${id}`), get(`/v1/jobs?batch=${id}&limit=20`)]);
    if (JSON.stringify([one, latest]) === last) return;
    last = JSON.stringify([one, latest]);
    ended = one.state === "ended";
    const all = one.lines.accepted;
    const finished = total(one.counts, ENDED);
    fill(root,
      h("h1", {}, one.name),
      h("p", { class: "row" }, state(one.state), h("span", { class: "quiet" }, `${number(finished)} of ${number(all)} jobs ended`)),
      h("p", {}, bar(all ? finished / all : 0, "Jobs ended")),
      one.held ? h("p", { class: "card" }, h("strong", {}, "Held. "), one.held.reason,
        one.held.until ? [" Resumes at ", moment(one.held.until), "."] : null) : null,
      one.deadline ? h("p", {}, "Deadline ", moment(one.deadline.at), `: ${one.deadline.state.replace("_", " ")}. `,
        h("span", { class: "quiet" }, one.deadline.basis)) : null,
      h("div", { class: "tiles" },
        tile(hours(one.audio.done_seconds), "of audio done"),
        ended ? null : tile(one.audio.left_seconds === null ? "–" : hours(one.audio.left_seconds), "of audio left", one.audio.basis),
        ended ? null : tile(one.speed.rtfx_now === null ? "–" : `${number(one.speed.rtfx_now)}×`, "RTFx now"),
        ended ? null : tile(span(one.time.left_seconds), "remaining", one.time.basis),
        tile(money(one.cost.billable, one.cost.currency), ended ? "cost" : "cost so far"),
        ended ? null : tile(money(one.cost.expected, one.cost.currency), "expected in total", one.cost.basis)),
      ended ? null : h("ul", { class: "quiet small" }, [...new Set([one.audio.basis, one.time.basis, one.cost.basis])].map((basis) => h("li", {}, basis))),
      h("p", { class: "row" },
        h("button", { type: "button", onclick: () => save(`/v1/batches/${id}/results`, `${id}.jsonl`)
          .catch((error) => notice(error.message, true)) }, "Download results (JSONL)"),
        h("button", { type: "button", disabled: !one.counts.done,
          onclick: () => save(`/v1/batches/${id}/transcripts?format=${form.value}`, `${id}.${form.value}.zip`)
            .catch((error) => notice(error.message, true)) }, "Download transcripts (zip)"),
        h("label", { class: "inline" }, "as", form),
        h("button", { type: "button", hidden: !one.counts.failed,
          onclick: () => act(null, "POST", `/v1/batches/${id}/retry-failed`, "The failed jobs are queued again.") },
        `Retry ${number(one.counts.failed)} failed`),
        h("button", { type: "button", class: "danger", hidden: one.state === "ended",
          onclick: () => act("Cancel every unfinished job of this batch?", "DELETE", `/v1/batches/${id}`, "The batch is cancelled.") },
        "Cancel")),
      one.counts.done ? h("p", {}, h("a", { href: `#/batches/${id}/diff` }, "Compare with later versions")) : null,
      facts(one, latest));
  }
  await refresh();
  return { refresh, live: ended ? null : `/v1/batches/${id}/events` };
}

const failedOf = (batch) => `#/jobs?batch=${batch.id}&state=failed`;

const tile = (value, label, title) =>
  h("div", { class: "tile", title }, h("b", {}, value), h("span", { class: "quiet small" }, label));

function facts(one, latest) {
  const columns = [{ title: "Line", number: true }, { title: "custom_id" }, { title: "Error", class: "name" }];
  columns.label = "Invalid lines";
  return [
    h("h2", {}, "Jobs"),
    h("p", { class: "row" }, Object.entries(one.counts).map(([name, jobs]) => [state(name),
      jobs ? h("a", { href: `#/jobs?batch=${one.id}&state=${name}` }, number(jobs)) : "0"])),
    latest.items.length ? jobTable(latest.items) : null,
    latest.next_cursor ? h("p", {}, h("a", { href: `#/jobs?batch=${one.id}` }, "All jobs of this batch")) : null,
    one.reused ? h("p", { class: "quiet" }, `${count(one.reused, "job was", "jobs were")} free of charge, since an earlier transcript was reused.`) : null,
    one.incomplete ? h("p", { class: "card error" }, h("strong", {}, `${count(one.incomplete, "recording was", "recordings were")} cut off. `),
      "The rest was transcribed; each job says how much is missing.") : null,
    one.bad_lines.length ? [h("h2", {}, count(one.lines.bad, "invalid line", "invalid lines")),
      table(columns, one.bad_lines.map((bad) => [number(bad.line), bad.custom_id ?? "", bad.message]))] : null,
    one.lines.skipped ? h("details", { class: "card" },
      h("summary", {}, `${count(one.lines.skipped, "file", "files")} skipped, because they are hidden or are not recordings`),
      h("ul", { class: "small" }, one.skipped_files.map((file) => h("li", {}, h("code", {}, file.path), `: ${file.reason}`)))) : null,
    h("p", { class: "quiet small" }, `${one.id} · ${one.source} · project ${one.project} · submitted `, moment(one.times.created_at)),
  ];
}
