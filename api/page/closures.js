// What of a recording is closed to readers: a list in the side panel, a form to close more, and the words that are closed.
// Nothing closed is shown before somebody asks for it, since that is logged.

import { clock, h, notice } from "./dom.js";
import { day, seconds } from "./format.js";
import { get, send } from "./http.js";
import { speakerName } from "./speakers.js";

export const untilWords = (until) => (until ? `closed until ${day(until)}` : "closed for good");

// Where a stretch of the transcript is closed: until when it is; null where nothing is.
export function closedAt(transcript, start, end) {
  const found = (transcript.closed ?? []).find((one) => start < (one.end ?? Infinity) && end > one.start);
  return found ? untilWords(found.until) : null;
}

// `opened`: whether closed words are shown; `show(is)` draws the transcript anew, with or without them.
export function closuresOf(job, transcript, opened, show) {
  const list = h("ul", { class: "small closures" });
  const kind = h("select", { id: "close-kind" }, h("option", { value: "range" }, "A passage"),
    transcript.speakers?.map((one) => h("option", { value: one.label }, speakerName(one))), h("option", { value: "whole" }, "The whole recording"));
  const from = h("input", { id: "close-from", placeholder: "12:30", size: "7" });
  const to = h("input", { id: "close-to", placeholder: "14:00", size: "7" });
  const times = h("div", { class: "row" }, h("label", {}, "From", from), h("label", {}, "To", to));
  const until = h("input", { id: "close-until", type: "date" });
  const reason = h("input", { id: "close-reason", maxlength: "1000" });
  kind.addEventListener("change", () => { times.hidden = kind.value !== "range"; });
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); close(); } },
    h("label", {}, "What", kind), times, h("label", {}, "Until (without a date: for good)", until), h("label", {}, "Reason", reason),
    h("button", {}, "Close"));

  async function load() {
    const { items } = await get(`/v1/jobs/${job.id}/closures`);
    const standing = items.filter((one) => !one.lifted_at && !(one.until && new Date(one.until) <= new Date()));
    list.replaceChildren(...standing.map((one) => h("li", {}, what(one), ": ", untilWords(one.until), one.reason ? `, “${one.reason}” ` : " ",
      h("button", { type: "button", class: "small", "aria-label": `Open ${what(one)} for all readers`, onclick: () => open(one) }, "Open for all"))));
  }
  const what = (one) => one.kind === "range" ? `${clock(one.start)} to ${clock(one.end)}` : one.speaker ? speakerName({ label: one.speaker, name: null }) : "the recording";
  async function close() {
    const asked = { kind: kind.value === "range" || kind.value === "whole" ? kind.value : "speaker", reason: reason.value.trim() };
    if (asked.kind === "speaker") asked.speaker = kind.value;
    if (asked.kind === "range") {
      asked.start = seconds(from.value);
      asked.end = seconds(to.value);
      if (asked.start === null || asked.end === null) return notice("Write the times as 12:30 or in seconds.", true);
    }
    if (until.value) asked.until = `${until.value}T00:00:00Z`;
    await change("POST", `/v1/jobs/${job.id}/closures`, "Closed to readers.", asked);
  }
  const open = (one) => confirm("Open this for all readers?") && change("DELETE", `/v1/jobs/${job.id}/closures/${one.id}`, "Open for all readers.");
  async function change(method, path, message, body) {
    try {
      await send(method, path, body);
      notice(message);
      await show(false);
    } catch (error) {
      notice(error.message, true);
    }
  }
  const toggle = transcript.closed?.length ? h("button", { type: "button", class: "small", onclick: () => show(!opened).catch((error) => notice(error.message, true)) },
    opened ? "Hide what is closed" : "Show what is closed") : null;
  load().catch((error) => notice(error.message, true));
  return h("section", {}, h("h2", {}, "Closed to readers"), list,
    toggle ? h("p", {}, toggle, h("span", { class: "quiet small" }, opened ? " It was logged that you did." : " This is logged.")) : null,
    h("details", {}, h("summary", {}, "Close something"), form));
}
