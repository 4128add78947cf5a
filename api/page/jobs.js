// The list of jobs, filtered, a page at a time. The filters are in the address.

import { bar, brief, clock, count, h, span, state, table } from "./dom.js";
import { get } from "./http.js";

const STATES = ["", "queued", "running", "done", "failed", "cancelled"];

export function jobTable(jobs) {
  const columns = [
    { title: "Recording", class: "name" }, { title: "State" }, { title: "Length", number: true }, { title: "Progress" },
    { title: "Submitted" }, { title: "Project" },
  ];
  columns.label = "Recordings";
  return table(columns, jobs.map((job) => [
    h("a", { href: `#/jobs/${job.id}` }, job.name), state(job.state), clock(job.progress.audio_seconds),
    progressOf(job), brief(job.times.created_at), h("span", { class: "project" }, job.project),
  ]));
}

function progressOf(job) {
  if (job.state === "running") {
    return [bar(job.progress.fraction ?? 0, `${job.name}: progress`),
      h("span", { class: "small quiet" }, `${span(job.progress.done_seconds)} done`)];
  }
  if (job.held) return h("span", { class: "small quiet" }, `held: ${job.held.reason}`);
  if (job.waiting_for) return h("span", { class: "small" }, `waiting for ${job.waiting_for}`);
  if (job.state === "queued" && job.error) return h("span", { class: "small" }, `retrying: ${job.error.message}`);
  if (job.state === "failed") return h("span", { class: "small" }, (job.error?.message ?? "").replace(`${job.name}: `, ""));
  if (job.state === "done") {
    return h("span", { class: "small quiet" }, job.reused_from ? "reused" : count(job.words ?? 0, "word", "words"),
      job.complete === false ? [", ", h("strong", { class: "warning" }, lengthOf(job))] : null,
      job.warnings.length ? [", ", h("strong", { class: "warning", title: job.warnings.join("\n") }, "see its warnings")] : null);
  }
  return "";
}

// Whether the recording is all there, by its own header; null while the job is not done.
export function lengthOf(job) {
  if (job.state !== "done") return null;
  if (job.complete === null) return "length not stated by the file";
  if (job.complete) return "complete";
  return job.missing_seconds === null ? "cut off" : `cut off, ${span(job.missing_seconds)} missing`;
}

const FILTERS = {
  name: ["Name", { type: "search", maxlength: "200" }],
  project: ["Project", { maxlength: "64" }],
  batch: ["Batch", { maxlength: "64" }],
  tag: ["Tag", { maxlength: "300", placeholder: "key or key=value" }],
  created_from: ["From", { type: "date" }],
  created_to: ["To", { type: "date" }],
};

// Days as the reader's clock has them; the last one belongs to the range.
export function momentOf(name, day) {
  const midnight = new Date(`${day}T00:00`);
  if (name === "created_to") midnight.setDate(midnight.getDate() + 1);
  return midnight.toISOString();
}

export async function showJobs(root, query) {
  const chosen = STATES.includes(query.get("state") ?? "") ? query.get("state") ?? "" : "";
  const cursors = [""];
  const filters = h("form", { class: "filters", role: "search", "aria-label": "Filters", onsubmit: (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams([...new FormData(filters)].filter(([, value]) => value));
    location.hash = `#/jobs${wanted.size ? "?" : ""}${wanted}`;
  }, onchange: () => filters.requestSubmit() },
  h("label", {}, "State", h("select", { name: "state" },
    STATES.map((name) => h("option", { value: name, selected: name === chosen }, name || "all")))),
  Object.entries(FILTERS).map(([name, [title, given]]) => h("label", {}, title, h("input", { name, ...given, value: query.get(name) }))),
  h("button", {}, "Show"), h("a", { href: "#/jobs" }, "Clear"));
  const list = h("div");
  const newer = h("button", { type: "button", onclick: () => { cursors.pop(); refresh(); } }, "Newer");
  const older = h("button", { type: "button" }, "Older");
  async function refresh() {
    const parameters = new URLSearchParams({ limit: "50" });
    if (chosen) parameters.set("state", chosen);
    for (const name of Object.keys(FILTERS)) {
      const value = query.get(name);
      if (value) parameters.set(name, name.startsWith("created") ? momentOf(name, value) : value);
    }
    if (cursors.at(-1)) parameters.set("cursor", cursors.at(-1));
    const page = await get(`/v1/jobs?${parameters}`);
    list.replaceChildren(page.items.length ? jobTable(page.items)
      : h("p", { class: "quiet" }, query.size ? "No recording matches these filters." : "No recordings."));
    newer.disabled = cursors.length === 1;
    older.disabled = !page.next_cursor;
    older.onclick = () => { cursors.push(page.next_cursor); refresh(); };
  }
  root.append(h("h1", {}, "Recordings"), filters, list, h("p", { class: "row" }, newer, older));
  await refresh();
  return { refresh };
}
