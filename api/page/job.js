// One job: its state, its cost, and its words beside the recording.

import { bar, clock, count, facts, fill, h, moment, money, notice, number, span, state } from "./dom.js";
import { get, send } from "./http.js";
import { lengthOf } from "./jobs.js";
import { openDiarize } from "./speakers.js";
import { showTranscript } from "./transcript.js";
import { versionsOf } from "./versions.js";

const ERROR_TITLES = { queued: "The last attempt failed and will be retried: ", failed: "Failed: ", cancelled: "Cancelled: " };
const ENDED = ["done", "failed", "cancelled"];

export async function showJob(root, id, query) {
  let last = null;
  let words = null;
  const head = h("div");
  const body = h("div");
  root.append(head, body);
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
  // The live events of this view are for its first state alone: look until the job is done once more.
  async function again() {
    notice("Looking for speakers.");
    words?.leave();
    words = null;
    last = null;
    fill(body);
    while (root.isConnected) {
      await refresh();
      if (ENDED.includes(last.state)) return;
      await new Promise((go) => setTimeout(go, 1000));
    }
  }
  async function refresh() {
    if (last && ENDED.includes(last.state) && !last.exports.some((file) => file.state === "pending")) return;
    const job = await get(`/v1/jobs/${id}`);
    if (JSON.stringify(job) === JSON.stringify(last)) return;
    last = job;
    fill(head,
      h("h1", {}, job.name),
      h("p", { class: "row" }, state(job.state),
        job.state === "running" ? h("span", { class: "quiet" }, `${span(job.progress.done_seconds)} of ${span(job.progress.audio_seconds)}`) : null,
        h("button", { type: "button", class: "danger", hidden: ENDED.includes(job.state),
          onclick: () => act("Cancel this job?", "DELETE", `/v1/jobs/${id}`, "Cancelled.") }, "Cancel"),
        h("button", { type: "button", hidden: !["failed", "cancelled"].includes(job.state),
          onclick: () => act(null, "POST", `/v1/jobs/${id}/retry`, "Queued again.") }, "Retry"),
        h("button", { type: "button", hidden: job.state !== "done" || job.deleted !== null,
          onclick: () => openDiarize(job, again) }, job.speakers ? "Find speakers again" : "Find speakers")),
      job.state === "running" ? h("p", {}, bar(job.progress.fraction ?? 0, "Progress")) : null,
      job.held ? h("p", { class: "card" }, h("strong", {}, "Held. "), job.held.reason) : null,
      job.waiting_for ? h("p", { class: "card" }, h("strong", {}, "No running worker can take this job. "), `It is waiting for ${job.waiting_for}.`) : null,
      job.error ? h("p", { class: "card error" }, h("strong", {}, ERROR_TITLES[job.state]), job.error.message.replace(`${job.name}: `, "")) : null,
      job.deleted ? h("p", { class: "card" }, deletedWords(job.deleted)) : null,
      job.complete === false ? h("p", { class: "card error" }, h("strong", {}, "The recording was cut off. "),
        job.missing_seconds === null ? "The file does not state how much is missing. "
          : `Its header states ${clock(job.expected_seconds)}, but ${span(job.missing_seconds)} are missing. `,
        "The rest was transcribed.") : null,
      job.warnings.length ? h("ul", { class: "card" }, job.warnings.map((warning) => h("li", {}, warning))) : null,
      unwritten(job).length ? h("p", { class: "card" }, h("strong", {}, "Some output files were not written. "),
        unwritten(job).map((file) => `${file.format}: ${file.error} `),
        h("button", { type: "button", onclick: () => act(null, "POST", `/v1/jobs/${id}/exports`, "The files are being written again.") }, "Write again")) : null,
      h("details", { class: "card" }, h("summary", {}, summary(job)), details(job)),
      ENDED.includes(job.state) ? await versionsOf(job) : null,
    );
    if (job.state === "done" && words === null && !job.deleted?.transcript) {
      words = await showTranscript(body, job, query.get("t"));
    }
  }
  await refresh();
  return { refresh, leave: () => words?.leave(), live: ENDED.includes(last.state) ? null : `/v1/jobs/${id}/events` };
}

// Files of its output that are not there, or not yet, for a reason.
const unwritten = (job) => job.exports.filter((file) => file.error && file.state !== "replaced");

// What was deleted on purpose; the job's name, figures and costs stay.
function deletedWords(deleted) {
  return [["recording", deleted.source], ["transcript", deleted.transcript]].filter(([, at]) => at)
    .map(([what, at]) => [`The ${what} was deleted on `, moment(at), ". "]);
}

function summary(job) {
  const parts = [job.progress.audio_seconds === null ? null : clock(job.progress.audio_seconds), job.words === null ? null : count(job.words, "word", "words"),
    job.cost.rtfx === null ? null : `RTFx ${number(job.cost.rtfx, 1)}`,
    job.reused_from ? "free of charge (reused)" : money(job.cost.billable, job.cost.currency),
    job.coverage === null ? null : `${number(job.coverage * 100, 2)} % covered`, lengthOf(job)];
  return parts.filter(Boolean).join(" · ");
}

// What became of the recording's samples.
function coverage(job) {
  return [`${number(job.coverage * 100, 2)} % of the samples in exactly one chunk`,
    job.decoded_seconds === null ? null : `${clock(job.decoded_seconds)} decoded`,
    job.skipped_seconds === null ? null : `${clock(job.skipped_seconds)} passed over as silence or without speech`,
    job.speech_coverage === null ? null : `${number((1 - job.speech_coverage) * 100, 1)} % of the detected speech without words`,
  ].filter(Boolean).join(", ");
}

function details(job) {
  const options = Object.entries(job.options).filter(([name, value]) => value !== null && value !== "" && name !== "align")
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  return facts([
    ["Job", h("code", {}, job.id)], ["Source", job.source.uri], ["Project", job.project], ["Options", options],
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
    ["Cost", `${money(job.cost.billable, job.cost.currency)}, wasted ${money(job.cost.wasted, job.cost.currency)}`],
    job.reused_from ? ["Reused from", h("a", { href: `#/jobs/${job.reused_from}` }, job.reused_from)] : null,
  ]);
}
