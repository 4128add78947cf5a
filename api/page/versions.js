// The versions of a recording: run it again with another model, and two transcripts of it beside each other.

import { brief, clock, count, fill, h, money, notice, number, state, table } from "./dom.js";
import { openClip } from "./clips.js";
import { get, send } from "./http.js";
import { joinWords } from "./spacing.js";
import { timesOf } from "./stretch.js";

const SHOWN = 200;
const BATCH = columns("Versions", "Recording", "#Words", "#Changed", "#WER", "#Cost", "#Cost later");
const DIFFERENCES = columns("Differences", "At", "First", "Second", "#Doubt");

// The versions of a job's recording.
export async function versionsOf(job) {
  const { items, stored } = await get(`/v1/jobs/${job.id}/versions`);
  const rows = items.map((one) => h("li", {},
    one.job === job.id ? h("strong", {}, "This one") : h("a", { href: `#/jobs/${one.job}` }, brief(one.created_at)), ": ",
    one.model, ", ", howOf(one.options), one.stretch ? `, ${clock(one.stretch.start)} to ${clock(one.stretch.end)} again` : "", ", ", one.deleted ? "deleted" : state(one.state),
    one.words === null ? "" : `, ${count(one.words, "word", "words")}`, `, ${money(one.cost.billable, one.cost.currency)}`,
    one.job === job.id || one.state !== "done" || one.deleted || job.state !== "done" || job.deleted?.transcript ? ""
      : [" ", h("a", { href: `#/jobs/${job.id}/diff/${one.job}`, "aria-label": `Compare with ${one.model}, ${howOf(one.options)}` }, "Compare")]));
  return h("section", {}, h("h2", {}, "Versions"), h("ul", { class: "small versions" }, rows),
    stored && !job.deleted ? h("button", { type: "button", onclick: () => openRerun(job) }, "Run again") : null,
    stored && !job.deleted && job.state === "done" && !job.options.align
      ? [" ", h("button", { type: "button", onclick: () => openStretch(job) }, "Run a stretch again")] : null,
    job.state === "done" && !job.deleted?.transcript ? [" ", h("button", { type: "button", onclick: () => openClip(job) }, "Cite a stretch")] : null);
}

// How the words of a version came about.
export const howOf = (options) => options.align ? "aligned text" : options.decoder;

// A file's bytes in base64.
function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}

async function modelsFor(job) {
  const { items } = await get("/v1/models");
  return h("select", { id: "rerun-model" }, items.map((one) => h("option", { value: one.name, selected: one.name === job.options.model }, one.name)));
}

// A dialog whose form is sent with what `body` makes of it: an object, or null where it has told what is missing.
function ask(job, title, fields, body) {
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    try {
      const asked = await body();
      if (asked === null) return;
      const version = await send("POST", `/v1/jobs/${job.id}/rerun`, asked);
      dialog.close();
      location.hash = `#/jobs/${version.id}`;
    } catch (error) {
      notice(error.message, true);
    }
  } }, h("h2", { id: "rerun-title" }, title), fields,
  h("div", { class: "row" }, h("button", { class: "primary" }, "Run again"), h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  const dialog = h("dialog", { "aria-labelledby": "rerun-title" }, form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// A stretch again: the times of the selected words, or two times.
async function openStretch(job) {
  const times = timesOf();
  const model = await modelsFor(job);
  ask(job, "Run a stretch again", [
    h("label", {}, "Model", model),
    times.fields,
    h("p", { class: "quiet small" }, "Only this stretch is transcribed and paid. The new version has its words; all others, with their corrections, stay as they are. "
      + "Select words in the transcript to fill in the times."),
  ], () => {
    const wanted = times.values();
    return wanted && { options: { model: model.value }, ...wanted };
  });
}

async function openRerun(job) {
  const model = await modelsFor(job);
  const text = h("input", { id: "rerun-text", type: "file", accept: ".txt,.srt,.vtt,.docx" });
  ask(job, "Run again", [
    h("label", {}, "Model", model),
    h("label", {}, "Existing transcript (optional)", text),
    h("p", { class: "quiet small" }, "If you choose a transcript (text, SRT, WebVTT or Word), its words are aligned with the recording instead of being recognised again. "
      + "The model needs a CTC head."),
    h("p", { class: "quiet small" }, "The recording is not uploaded again. The current transcript is kept, so that you can compare the two."),
  ], async () => {
    const options = { model: model.value };
    if (text.files.length) options.align = { data: await base64(text.files[0]), name: text.files[0].name.slice(0, 200) };
    return { options };
  });
}

export async function showDiff(root, base, other, query) {
  const sort = query.get("sort") === "doubt" ? "doubt" : "time";
  const [job, later, diff] = await Promise.all([get(`/v1/jobs/${base}`), get(`/v1/jobs/${other}`),
    get(`/v1/jobs/${base}/diff?${new URLSearchParams({ with: other, sort, limit: String(SHOWN) })}`)]);
  const title = (one) => h("a", { href: `#/jobs/${one.id}` }, `${one.options.model}, ${howOf(one.options)}`);
  const order = (name, words) => name === sort ? h("strong", {}, words)
    : h("a", { href: `#/jobs/${base}/diff/${other}?sort=${name}` }, words);
  fill(root,
    h("h1", {}, job.name),
    h("p", {}, title(job), " → ", title(later)),
    h("p", {}, `${count(diff.total, "difference", "differences")}; ${number(diff.edits)} of ${count(diff.words, "word", "words")}`,
      diff.wer === null ? "" : `: word error rate ${number(diff.wer * 100, 2)} %, if every word of the first were right`, "."),
    diff.total ? h("p", { class: "row small" }, "Sort ", order("time", "by time"), order("doubt", "by doubt")) : null,
    diff.items.length ? table(DIFFERENCES, diff.items.map((one) => [
      h("a", { href: `#/jobs/${base}?t=${one.start}`, "aria-label": `Play from ${clock(one.start)}` }, clock(one.start)),
      one.base.length ? h("del", {}, words(one.base)) : "–", one.other.length ? h("ins", {}, words(one.other)) : "–", number(one.doubt, 2)])) : null,
    diff.total > diff.items.length ? h("p", { class: "quiet" }, `The first ${SHOWN} are shown.`) : null);
}

// A batch beside the newest later versions of its recordings: a row each, and the sums, a page at a time.
export async function showBatchDiff(root, id) {
  let stopped = false;
  const sums = { recordings: 0, words: 0, edits: 0, before: 0, after: 0 };
  const rows = [];
  const batch = await get(`/v1/batches/${id}`);
  const status = h("p", { role: "status" }, "Reading …");
  const list = h("div", {});
  root.append(h("h1", {}, batch.name), h("p", {}, h("a", { href: `#/batches/${id}` }, "The batch"), " and the newest later version of each recording."),
    status, list);
  const percent = (edits, of) => of ? `${number((100 * edits) / of, 2)} %` : "–";
  async function load() {
    for (let cursor = null; !stopped;) {
      const page = await get(`/v1/batches/${id}/diff?${new URLSearchParams(cursor ? { cursor } : {})}`);
      for (const one of page.items) {
        rows.push([h("a", { href: `#/jobs/${one.base}/diff/${one.other}?sort=doubt` }, one.name), number(one.words), number(one.edits),
          percent(one.edits, one.words), money(one.cost_before, page.sums.currency), money(one.cost_after, page.sums.currency)]);
        sums.recordings += 1;
        sums.words += one.words;
        sums.edits += one.edits;
        sums.before += Number(one.cost_before);
        sums.after += Number(one.cost_after);
      }
      cursor = page.next_cursor;
      status.textContent = rows.length ? `${count(sums.recordings, "recording", "recordings")}${cursor ? " so far" : ""}; ${number(sums.edits)} of ${
        count(sums.words, "word", "words")} changed: word error rate ${percent(sums.edits, sums.words)}, if every word of the first were right. Cost ${
        money(sums.before, page.sums.currency)} before, ${money(sums.after, page.sums.currency)} after.`
        : "No recording of this batch has a later version that is done.";
      if (rows.length) fill(list, table(BATCH, rows));
      if (!cursor) return;
    }
  }
  load().catch((error) => notice(error.message, true));
  return { leave: () => { stopped = true; } };
}

const words = (list) => joinWords(list.map((one) => one.text));

function columns(label, ...titles) {
  return Object.assign(titles.map((title) => ({ title: title.replace("#", ""), number: title.startsWith("#") })), { label });
}
