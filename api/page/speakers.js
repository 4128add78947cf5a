// Who speaks: a row of speakers above the transcript (filter, names), and a bar of their turns under the player.
// A speaker reads without colour too: by letter, by name, and by a row of their own in the bar.

import { clock, count, h, notice, s, span } from "./dom.js";
import { get, send } from "./http.js";

const COLOURS = 8;
const ROW = 9;
const SINGLE = 1500; // turns that are drawn one by one

export const letter = (at) => (at < 26 ? "" : letter(Math.floor(at / 26) - 1)) + String.fromCharCode(65 + (at % 26));
export const speakerName = (speaker) => speaker.name ?? `Speaker ${Number(speaker.label.split("_")[1]) + 1}`;

// What the transcript shows of its speakers. `renamed` and `filtered` are called when a person changes something;
// `filtered` gets the labels to show, null for all.
export function speakersOf(transcript, job, play, renamed, filtered) {
  const speakers = transcript.speakers ?? [];
  const places = new Map(speakers.map((speaker, at) => [speaker.label, at]));
  const only = new Set();
  const heard = new Map();
  const chips = h("div", { class: "speakers", role: "group", "aria-label": "Speakers. Press one to show only their words." });

  function show() {
    chips.replaceChildren(...speakers.map((speaker, at) => chip(speaker, at)));
    if (only.size) chips.append(h("button", { type: "button", class: "small", onclick: () => { only.clear(); changed(); } }, "Show all"));
  }
  function changed() {
    show();
    filtered(only.size ? only : null);
  }
  function chip(speaker, at) {
    const toggle = h("button", { type: "button", class: "speaker", "aria-pressed": String(only.has(speaker.label)),
      title: `${span(speaker.talk_seconds)}, ${count(speaker.words, "word", "words")}`,
      onclick: () => { only.has(speaker.label) ? only.delete(speaker.label) : only.add(speaker.label); changed(); } },
    badge(at), speakerName(speaker), h("span", { class: "quiet small" }, ` ${span(speaker.talk_seconds)}`));
    const rename = h("button", { type: "button", class: "rename small", "aria-label": `Rename ${speakerName(speaker)}`,
      onclick: edit }, "✎");
    const group = h("span", { class: "chip" }, toggle, rename, likely(speaker));
    function edit() {
      group.replaceChildren(editor(speaker, at));
      const input = group.querySelector("input");
      input.focus();
      input.select();
    }
    return group;
  }
  // A voice that a person named before: one press confirms it.
  function likely(speaker) {
    const [best] = heard.get(speaker.label)?.matches ?? [];
    if (!best || speaker.name === best.name) return null;
    return h("button", { type: "button", class: "small quiet", title: `Voice prints are alike: ${best.similarity.toFixed(2)}. Known from ${count(best.recordings, "recording", "recordings")}.`,
      onclick: () => name(speaker, best.name, true) }, `${best.name}?`);
  }
  async function name(speaker, text, remember) {
    try {
      keep(await send("PATCH", `/v1/jobs/${job.id}/speakers`, { names: { [speaker.label]: text }, remember }));
      show();
      renamed();
    } catch (error) {
      notice(error.message, true);
    }
  }
  function keep(answer) {
    for (const one of answer.items) {
      heard.set(one.label, one);
      speakers[places.get(one.label)].name = one.name;
    }
  }
  function editor(speaker, at) {
    const input = h("input", { type: "text", maxlength: "100", value: speaker.name ?? "", "aria-label": `Name of ${speakerName(speaker)}`,
      placeholder: speakerName({ ...speaker, name: null }) });
    const remember = h("input", { type: "checkbox", id: `remember-${at}` });
    const form = h("form", { class: "row",
      onsubmit: (event) => { event.preventDefault(); name(speaker, input.value.trim() || null, remember.checked); } },
    badge(at), input,
    heard.get(speaker.label)?.has_voice_print ? h("label", { class: "inline small" }, remember, "Recognise this voice in other recordings") : null,
    h("button", { class: "small" }, "Save"));
    input.addEventListener("keydown", (event) => { if (event.key === "Escape") show(); });
    return form;
  }
  show();
  if (speakers.length) get(`/v1/jobs/${job.id}/speakers`).then((answer) => {
    keep(answer);
    if (!chips.querySelector("form")) show(); // nobody loses what they are typing
  }, () => {});
  return {
    any: speakers.length > 0,
    many: speakers.length > 1,
    chips,
    bar: speakers.length ? turnsBar(transcript, places, speakers, play) : null,
    at: (label) => places.get(label) ?? null,
    name: (label) => (places.has(label) ? speakerName(speakers[places.get(label)]) : ""),
  };
}

export const badge = (at) => h("span", { class: `badge sp${at % COLOURS}`, "aria-hidden": "true" }, letter(at));

function turnsBar(transcript, places, speakers, play) {
  const length = Math.max(transcript.audio.duration, 0.001);
  const rows = speakers.length;
  const image = s("svg", { viewBox: `0 0 1000 ${rows * ROW}`, preserveAspectRatio: "none", class: "turns", role: "img",
    "aria-label": `Who speaks when: ${speakers.map((one) => `${speakerName(one)} ${span(one.talk_seconds)}`).join(", ")}` });
  const turns = transcript.turns ?? [];
  const paths = speakers.map(() => []);
  for (const turn of turns) {
    const at = places.get(turn.speaker);
    if (at === undefined) continue;
    if (turns.length > SINGLE) paths[at].push(`M${(turn.start / length) * 1000} ${at * ROW + 1}h${Math.max(((turn.end - turn.start) / length) * 1000, 0.2)}v${ROW - 2}H${(turn.start / length) * 1000}z`);
    else image.append(s("rect", { x: (turn.start / length) * 1000, width: Math.max(((turn.end - turn.start) / length) * 1000, 1),
      y: at * ROW + 1, height: ROW - 2, class: `sp${at % COLOURS}` }, s("title", {}, `${speakerName(speakers[at])}, ${clock(turn.start)}`)));
  }
  paths.forEach((path, at) => path.length && image.append(s("path", { d: path.join(""), class: `sp${at % COLOURS}` })));
  const now = s("line", { x1: 0, x2: 0, y1: 0, y2: rows * ROW, class: "now" });
  image.append(now);
  image.addEventListener("click", (event) => {
    const box = image.getBoundingClientRect();
    play(((event.clientX - box.left) / box.width) * length);
  });
  const letters = h("div", { class: "letters", "aria-hidden": "true" }, speakers.map((_, at) => h("span", {}, letter(at))));
  const element = h("div", { class: `turnsbox rows${Math.min(rows, 12)}` }, letters, image);
  return { element, move: (seconds) => { const x = (seconds / length) * 1000; now.setAttribute("x1", x); now.setAttribute("x2", x); } };
}

// For a job that is done: a dialog that asks who speaks, without transcribing anything again.
export function openDiarize(job, asked) {
  const counted = h("input", { type: "number", min: "1", max: "99", id: "speaker-count", placeholder: "unknown" });
  const voices = h("input", { type: "checkbox", id: "voice-prints" });
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    try {
      await send("POST", `/v1/jobs/${job.id}/diarize`, 
        { speakers: counted.value ? Number(counted.value) : null, voice_prints: voices.checked });
      dialog.close();
      asked();
    } catch (error) {
      notice(error.message, true);
    }
  } },
  h("h2", { id: "diarize-title" }, "Find speakers"),
  h("label", {}, "Number of speakers, if you know it", counted),
  h("label", { class: "inline" }, voices, "Recognise voices that were named before"),
  h("p", { class: "quiet small" }, "No word is transcribed again. Names that you gave stay with their speakers."),
  h("div", { class: "row" }, h("button", { class: "primary" }, "Find speakers"), close));
  const dialog = h("dialog", { "aria-labelledby": "diarize-title" }, form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
