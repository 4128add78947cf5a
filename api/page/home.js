// The archive: its collections, what is done in each, what failed and why, what wants a person; and the latest recordings.

import { bar, brief, clock, count, fill, h, left, notice, number, span } from "./dom.js";
import { get, send } from "./http.js";
import { lengthOf } from "./jobs.js";

const BATCHES = 50;
const LATEST = 12;
const CALM_MS = 6000; // between two looks at everything, and more where a large archive answers slowly
const CALM_SHARE = 10;
const total = (counts) => Object.values(counts).reduce((all, one) => all + one, 0);

export async function showHome(root) {
  let last = null;
  let due = 0;
  async function refresh() {
    const began = Date.now();
    if (began < due) return;
    const [now, latest] = await Promise.all([
      get(`/v1/overview?batches=${BATCHES}`), get(`/v1/jobs?limit=${LATEST}&first_words=true`)]);
    due = Date.now() + Math.max(CALM_MS, CALM_SHARE * (Date.now() - began));
    // Not drawn again unless something changed, so that the keyboard's place is kept.
    const shown = JSON.stringify([now.collections, now.unserved, latest.items]);
    if (shown === last) return;
    last = shown;
    const focused = document.activeElement?.closest?.("[data-key]")?.dataset.key;
    const open = [...root.querySelectorAll("details[open]")].map((one) => one.dataset.key);
    fill(root, h("h1", {}, "Archive"), latest.items.length || now.collections.length ? [
      summaryOf(now), unservedOf(now.unserved),
      h("h2", {}, "Collections"), collectionsOf(now.collections),
      h("h2", {}, "Latest recordings"), h("ul", { class: "recordings" }, latest.items.map((one) => recordingOf(one, again))),
      h("p", { class: "row" }, h("a", { href: "#/jobs" }, "All recordings"), h("a", { href: "#/batches" }, "All batches"), h("a", { href: "#/glossaries" }, "Glossaries")),
    ] : welcome());
    for (const key of open) root.querySelector(`details[data-key="${CSS.escape(key)}"]`)?.setAttribute("open", "");
    if (focused) root.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }
  async function again(id) {
    try {
      await send("POST", `/v1/jobs/${id}/retry`);
      notice("It is tried again.");
    } catch (error) {
      notice(error.message, true);
    }
    due = 0;
    await refresh();
  }
  await refresh();
  return { refresh };
}

const welcome = () => h("div", { class: "card welcome" },
  h("p", {}, h("strong", {}, "There are no recordings yet.")),
  h("p", {}, "Drop a folder of recordings anywhere on this page, or ", h("a", { href: "#/submit" }, "choose some to submit"), ". ",
    "When they are done, you read them, search every word and correct them here."));

function summaryOf({ collections }) {
  const projects = collections.filter((one) => one.batch === null);
  const sum = (measure) => projects.reduce((all, one) => all + measure(one), 0);
  const open = sum(isOpen);
  const times = projects.filter(isOpen).map((one) => one.left_seconds);
  return h("p", { class: "summary" }, [
    count(sum((one) => total(one.counts)), "recording", "recordings"), `${number(sum((one) => one.counts.done))} done`,
    open ? `${number(open)} still to do` : null,
    open ? left(times.includes(null) ? null : Math.max(...times)) : null,
  ].filter(Boolean).join(" · "));
}

function unservedOf(unserved) {
  if (!unserved.length) return null;
  return h("div", { class: "card error" }, h("strong", {}, "Some recordings wait, and nothing here can transcribe them."),
    h("ul", {}, unserved.map((one) => h("li", {}, `${count(one.jobs, "recording needs", "recordings need")} ${one.waiting_for}.`))),
    h("p", { class: "small" }, h("a", { href: "#/system" }, "See System")));
}

const isOpen = (one) => one.counts.queued + one.counts.running;

// Each project, and its batches below it.
function collectionsOf(collections) {
  return h("ul", { class: "collections" }, collections.filter((one) => one.batch === null).map((project) =>
    h("li", {}, collectionOf(project, `#/jobs?project=${encodeURIComponent(project.project)}`),
      h("ul", {}, collections.filter((one) => one.batch !== null && one.project === project.project)
        .map((one) => h("li", {}, collectionOf(one, `#/batches/${one.batch}`)))))));
}

function collectionOf(one, href) {
  const all = total(one.counts);
  const key = one.batch ?? `project ${one.project}`;
  const scope = one.batch ? `batch=${one.batch}` : `project=${encodeURIComponent(one.project)}`;
  const done = one.counts.done;
  return h("div", { class: `collection${one.batch ? "" : " whole"}` },
    h("div", { class: "title" }, h("a", { href, "data-key": key }, one.name),
      one.created_at ? h("span", { class: "quiet small" }, brief(one.created_at)) : null),
    h("div", { class: "done" }, bar(all ? done / all : 0, `${one.name}: done`),
      h("span", { class: "small" }, all && done === all ? `all ${number(all)} done` : `${number(done)} of ${number(all)} done`)),
    h("div", { class: "wants small" },
      isOpen(one) ? h("span", { class: "quiet" }, left(one.left_seconds)) : null,
      one.doubtful ? h("a", { href: `#/review?${scope}`, "data-key": `${key} review` }, `${count(one.doubtful, "passage", "passages")} to review`)
        : done ? h("span", { class: "quiet" }, "nothing doubtful") : null),
    one.failures.length ? h("details", { class: "small failed", "data-key": `${key} failed` },
      h("summary", {}, `${number(one.counts.failed)} failed`),
      h("ul", {}, one.failures.map((failure) => h("li", {}, `${number(failure.jobs)}: ${failure.reason}`))),
      h("a", { href: `#/jobs?${scope}&state=failed` }, "Show them")) : null);
}

function recordingOf(job, again) {
  const cut = job.complete === false ? h("strong", { class: "warning" }, `, ${lengthOf(job)}`) : null;
  const doubt = job.warnings.length ? h("strong", { class: "warning", title: job.warnings.join("\n") }, ", see its warnings") : null;
  return h("li", {},
    h("div", { class: "title" }, h("a", { href: `#/jobs/${job.id}`, "data-key": job.id }, job.name),
      h("span", { class: "quiet small" }, [job.progress.audio_seconds === null ? null : clock(job.progress.audio_seconds), job.project].filter(Boolean).join(" · "), cut, doubt)),
    h("p", { class: job.first_words ? "words" : "quiet" }, job.first_words ? `“${job.first_words} …”` : whatNow(job),
      job.state === "failed" ? [" ", h("button", { type: "button", class: "small", "data-key": `${job.id} again`, onclick: () => again(job.id) }, "Try again")] : null));
}

// Where a recording without words stands.
function whatNow(job) {
  const { done_seconds: done, audio_seconds: all } = job.progress;
  if (job.state === "running") return all ? `Being transcribed: ${span(done)} of ${span(all)}` : "Being transcribed";
  if (job.state === "failed") return `Failed: ${(job.error?.message ?? "no reason was given").replace(`${job.name}: `, "")}`;
  if (job.state === "cancelled") return "Cancelled";
  if (job.state === "done") return job.deleted ? "Its transcript was deleted" : "Nobody speaks in it";
  if (job.held) return `Held: ${job.held.reason}`;
  if (job.waiting_for) return `Waiting for ${job.waiting_for}`;
  return job.error ? `Is tried again: ${job.error.message}` : "Waiting for its turn";
}
