// One job: its state, its cost, and its words beside the recording.

import { bar, clock, count, facts, fill, h, moment, money, notice, number, span, state } from "./dom.js";
import { get, send } from "./http.js";
import { lengthOf } from "./jobs.js";
import { receiptOf } from "./receipt.js";
import { openDiarize } from "./speakers.js";
import { showTranscript } from "./transcript.js";
import { versionsOf } from "./versions.js";

const ERROR_TITLES = { queued: "The last attempt failed and will be retried: ", failed: "Failed: ", cancelled: "Cancelled: " };
const ENDED = ["done", "failed", "cancelled"];

export async function showJob(root, id, query) {
  let last = null;
  let words = null;
  let left = false; // an answer may come after this view was left, and words listen to the page's keys
  const head = h("div", { class: "title" });
  const about = h("div", { class: "about" });
  const body = h("div", { class: "body" });
  const places = { downloads: h("span"), history: h("div"), closures: h("div"), details: h("div"), receipt: h("div"), versions: h("div") };
  const panel = h("aside", { class: "panel", id: "panel", hidden: true, tabindex: "-1", "aria-label": "Details of the recording" },
    h("button", { type: "button", class: "close", "aria-label": "Close the details", onclick: () => open(false) }, "×"),
    places.history, places.closures, places.versions, places.details, places.receipt);
  const opener = h("button", { type: "button", "aria-controls": "panel", "aria-expanded": "false", onclick: () => open(panel.hidden) }, "Details");
  panel.addEventListener("keydown", (event) => { if (event.key === "Escape") open(false); });
  root.classList.add("recording");
  root.append(head, about, h("div", { class: "desk" }, body, panel));
  function open(is) {
    panel.hidden = !is;
    opener.setAttribute("aria-expanded", String(is));
    if (is) panel.focus({ preventScroll: true });
    else opener.focus();
  }
  async function act(question, method, path, message) {
    if (question && !confirm(question)) return;
    try {
      await send(method, path);
      notice(message);
    } catch (error) {
      notice(error.message, true);
    }
    last = null;
    await refresh();
  }
  // The live events of this view are for its first state alone: look until the job is done once more. Its words stay.
  async function again() {
    notice("Looking for speakers. The words stay here meanwhile.");
    last = null;
    while (root.isConnected) {
      await refresh();
      if (left) return;
      if (ENDED.includes(last.state)) return words?.again();
      await new Promise((go) => setTimeout(go, 1000));
    }
  }
  async function refresh() {
    if (last && ENDED.includes(last.state) && !last.exports.some((file) => file.state === "pending")) return;
    const job = await get(`/v1/jobs/${id}`);
    if (left || JSON.stringify(job) === JSON.stringify(last)) return;
    const before = last;
    last = job;
    fill(head,
      h("h1", {}, job.name),
      h("div", { class: "row acts" },
        h("button", { type: "button", class: "danger", hidden: ENDED.includes(job.state),
          onclick: () => act("Cancel this job?", "DELETE", `/v1/jobs/${id}`, "Cancelled.") }, "Cancel"),
        h("button", { type: "button", hidden: !["failed", "cancelled"].includes(job.state),
          onclick: () => act(null, "POST", `/v1/jobs/${id}/retry`, "Queued again.") }, "Retry"),
        h("button", { type: "button", hidden: job.state !== "done" || job.deleted !== null,
          onclick: () => openDiarize(job, again) }, job.speakers ? "Find speakers again" : "Find speakers"),
        places.downloads, opener));
    fill(about,
      h("p", { class: "quiet small line" }, state(job.state),
        job.state === "running" ? h("span", {}, ` ${span(job.progress.done_seconds)} of ${span(job.progress.audio_seconds)}`) : null, summary(job)),
      job.state === "running" ? h("p", {}, bar(job.progress.fraction ?? 0, "Progress")) : null,
      job.held ? h("p", { class: "card" }, h("strong", {}, "Held. "), job.held.reason) : null,
      job.waiting_for ? h("p", { class: "card" }, h("strong", {}, "No running worker can take this job. "), `It is waiting for ${job.waiting_for}.`) : null,
      job.error ? h("p", { class: "card error" }, h("strong", {}, ERROR_TITLES[job.state]), job.error.message.replace(`${job.name}: `, "")) : null,
      job.deleted ? h("p", { class: "card" }, deletedWords(job.deleted)) : null,
      job.complete === false ? h("p", { class: "card error" }, h("strong", {}, "The recording was cut off. "),
        job.missing_seconds === null ? "The file does not state how much is missing. "
          : `Its header states ${clock(job.expected_seconds)}, but ${span(job.missing_seconds)} are missing. `,
        "The rest was transcribed.") : null,
      job.warnings.length ? h("ul", { class: "card warnings" }, job.warnings.map((warning) => h("li", {}, warning))) : null,
      job.undelivered ? h("p", { class: "card" }, `${job.undelivered} `,
        h("button", { type: "button", onclick: () => act(null, "POST", `/v1/jobs/${id}/exports`, "The files are being written again.") }, "Write again")) : null);
    fill(places.details, h("h2", {}, "Details"), details(job));
    if (job.state !== before?.state) fill(places.receipt, job.state === "done" && !job.deleted?.transcript ? receiptOf(job, () => (places.opened ? "?closed=true" : "")) : null);
    if (ENDED.includes(job.state) && job.state !== before?.state) versionsOf(job).then((shown) => fill(places.versions, shown), (error) => notice(error.message, true));
    // While its speakers are being found, a job keeps its words.
    if ((job.state === "done" || job.words !== null) && words === null && !job.deleted?.transcript) {
      words = showTranscript(body, job, places, query.get("t"));
    }
  }
  function leave() {
    left = true;
    words?.leave();
  }
  await refresh();
  return { title: last.name, refresh, leave, live: ENDED.includes(last.state) ? null : `/v1/jobs/${id}/events` };
}

// What was deleted on purpose; the job's name, figures and costs stay.
function deletedWords(deleted) {
  return [["recording", deleted.source], ["transcript", deleted.transcript]].filter(([, at]) => at)
    .map(([what, at]) => [`The ${what} was deleted on `, moment(at), ". "]);
}

function summary(job) {
  const parts = [job.progress.audio_seconds === null ? null : clock(job.progress.audio_seconds), job.words === null ? null : count(job.words, "word", "words"),
    job.speakers?.length ? count(job.speakers.length, "speaker", "speakers") : null, job.options.model, lengthOf(job)];
  return parts.filter(Boolean).map((part) => [" · ", part]);
}

// What became of the recording's samples.
function coverage(job) {
  return [`${number(job.coverage * 100, 2)} % of the samples in exactly one chunk`,
    job.decoded_seconds === null ? null : `${clock(job.decoded_seconds)} decoded`,
    job.skipped_seconds === null ? null : `${clock(job.skipped_seconds)} passed over as silence or without speech`,
    job.speech_coverage === null ? null : `${number((1 - job.speech_coverage) * 100, 1)} % of the detected speech without words`,
    job.words_without_evidence === null ? null : `${count(job.words_without_evidence, "word", "words")} that the sound does not support`,
    job.speech_without_words ? `${clock(job.speech_without_words)} of clear speech without words` : null,
  ].filter(Boolean).join(", ");
}

function details(job) {
  const options = Object.entries(job.options).filter(([name, value]) => value !== null && value !== "" && name !== "align")
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  return facts([
    ["Job", h("code", {}, job.id)], ["Source", job.source.uri], ["Project", job.project],
    ["Options", h("details", {}, h("summary", {}, `${job.options.model}, ${job.options.decoder}`), options)],
    job.stretch ? ["Again", [`${clock(job.stretch.start)} to ${clock(job.stretch.end)}; the other words are those of `, h("a", { href: `#/jobs/${job.stretch.job}` }, "this version")]] : null,
    job.options.align ? ["Words", `${count(job.options.align.words, "word", "words")} of an existing transcript, aligned with the recording`] : null,
    job.batch ? ["Batch", h("a", { href: `#/batches/${job.batch}` }, job.batch)] : null,
    job.custom_id ? ["custom_id", job.custom_id] : null,
    Object.keys(job.tags).length ? ["Tags", Object.entries(job.tags).map(([name, value]) => `${name}: ${value}`).join(", ")] : null,
    job.output ? ["Output", [`${job.output.formats.join(", ")} below ${job.output.prefix}`,
      job.exports.map((file) => h("div", {}, state(file.state), " ", h("code", {}, file.uri ?? file.format), file.error ? ` ${file.error}` : ""))]] : null,
    ["Attempts", number(job.attempts) + (job.crashes ? `, ${job.crashes} crashed` : "")],
    job.lease_owner ? ["Worker", job.lease_owner] : null,
    ["Submitted", moment(job.times.created_at)], ["Started", moment(job.times.started_at)], ["Ended", moment(job.times.finished_at)],
    ["Engine", `${number(job.cost.engine_seconds, 2)} s for ${number(job.cost.audio_seconds, 1)} s of audio`],
    job.coverage === null ? null : ["Coverage", coverage(job)],
    job.cost.rtfx === null ? null : ["RTFx", number(job.cost.rtfx, 1)],
    ["Cost", job.reused_from ? "free of charge (reused)" : `${money(job.cost.billable, job.cost.currency)}, wasted ${money(job.cost.wasted, job.cost.currency)}`],
    job.reused_from ? ["Reused from", h("a", { href: `#/jobs/${job.reused_from}` }, job.reused_from)] : null,
  ]);
}
