// What of a recording is closed to readers: a list in the side panel, a form to close more, and the words that are closed.
// Nothing closed is shown before somebody asks for it, since that is logged.

import { clock, count, h, notice } from "./dom.js";
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
  const suggestions = suggestionsOf(job, opened, async (one) => change("POST", `/v1/jobs/${job.id}/closures`, `“${one.text}” is closed to readers.`,
    { kind: "range", start: one.start, end: one.end, reason: reason.value.trim(), ...untilOf() }));
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
    await change("POST", `/v1/jobs/${job.id}/closures`, "Closed to readers.", { ...asked, ...untilOf() });
  }
  const untilOf = () => (until.value ? { until: `${until.value}T00:00:00Z` } : {});
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
    h("details", {}, h("summary", {}, "Close something"), form), suggestions);
}

// Words that may name somebody, each for a person to close, or to say that they are not private; asked for when opened.
function suggestionsOf(job, opened, close) {
  const path = `/v1/jobs/${job.id}/closure-suggestions${opened ? "?closed=true" : ""}`;
  const list = h("ul", { class: "small suggestions" });
  const state = h("p", { class: "quiet small", role: "status" }, "Looking …");
  const panel = h("details", { open: looking === job.id, ontoggle: () => {
    looking = panel.open ? job.id : null;
    if (panel.open) load(get(path));
  } }, h("summary", {}, "Names, phone numbers, addresses"), state, list);
  async function load(asked) {
    try {
      const { items } = await asked;
      state.textContent = items.length ? `${count(items.length, "suggestion", "suggestions")}, found by simple rules: some are wrong, and others are missed. What you close has the date and the reason above.` : "Nothing is suggested.";
      list.replaceChildren(...items.map((one) => h("li", {}, h("a", { href: `#/jobs/${job.id}?t=${one.start}` }, clock(one.start)), " ", h("strong", {}, one.text), ` (${KINDS[one.kind]}) `,
        h("button", { type: "button", class: "small", "aria-label": `Close “${one.text}” at ${clock(one.start)}`, onclick: () => close(one) }, "Close"), " ",
        h("button", { type: "button", class: "small", "aria-label": `“${one.text}” is not private`, onclick: () => load(send("POST", path, { kind: one.kind, text: one.text })) }, "Not private"))));
    } catch (error) {
      notice(error.message, true);
    }
  }
  return panel;
}

// The job whose suggestions are open: they stay so while its words are drawn anew.
let looking = null;
const KINDS = { name: "name", phone: "phone number", address: "address" };
