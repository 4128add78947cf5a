// Corrections of a transcript: a paragraph is edited in place, what changed in it is sent, and every change can be undone.

import { clock, h, moment, notice } from "./dom.js";
import { get, send } from "./http.js";
import { isApart, joinWords } from "./spacing.js";

export const AUTHOR = "spool-author";

// What a new text changes: the words from `first` to `last` of `words` (as shown) become `text`. `range` is the
// paragraph; null where nothing changed. Corrections made before are replaced whole, not in part.
export function changeOf(words, corrections, range, text) {
  const before = words.map((word) => word.text);
  const [from, to] = range;
  const typed = text.split(/\s+/).filter(Boolean).flatMap((piece) => dividedAs(before.slice(from, to + 1), piece));
  const after = [...before.slice(0, from), ...typed, ...before.slice(to + 1)];
  const grown = after.length - before.length;
  let first = from;
  while (first <= to && first - from < typed.length && before[first] === after[first]) first++;
  let last = to;
  while (last >= first && last + grown >= first && before[last] === after[last + grown]) last--;
  if (first > last && !grown) return null;
  if (first > last) first > from ? first-- : last++;
  for (const one of corrections) {
    const end = one.word + one.words - 1;
    if (one.word <= last && first <= end) [first, last] = [Math.min(first, one.word), Math.max(last, end)];
  }
  return { first_word: origin(corrections, first, false), last_word: origin(corrections, last, true),
    text: joinWords(after.slice(first, last + 1 + grown)) };
}

// A stretch without spaces, divided as the words are at its beginning and at its end: in Chinese, Japanese or Thai a whole
// passage is one stretch, and what did not change in it is not sent.
function dividedAs(words, piece) {
  if (words.includes(piece)) return [piece];
  const head = [], tail = [];
  let rest = piece;
  const glued = (one, other) => !other || !isApart(one, other);
  for (const word of words) {
    if (!rest.startsWith(word) || !glued(word, rest.slice(word.length))) break;
    head.push(word);
    rest = rest.slice(word.length);
  }
  for (const word of words.slice(head.length).reverse()) {
    if (!rest.endsWith(word) || !glued(rest.slice(0, -word.length), word)) break;
    tail.unshift(word);
    rest = rest.slice(0, -word.length);
  }
  return [...head, ...(rest ? [rest] : []), ...tail];
}

// The number that a shown word had when it was recognised; of a corrected range its first or last one.
function origin(corrections, at, end) {
  let shift = 0;
  for (const one of corrections) {
    if (at < one.word) break;
    if (at < one.word + one.words) return end ? one.last_word : one.first_word;
    shift += one.last_word - one.first_word + 1 - one.words;
  }
  return at + shift;
}

// An editor in place of a paragraph, with the caret before the word `at`. `done` is called after a change was kept, `cancel`
// to show what was there.
export function editorOf(job, transcript, seen, range, speakers, speaker, done, cancel, at = range[0], query = "") {
  const textOf = (first, end) => joinWords(transcript.words.slice(first, end).map((word) => word.text));
  const shown = textOf(range[0], range[1] + 1);
  const input = h("textarea", { rows: String(Math.min(12, 2 + Math.ceil(shown.length / 70))), "aria-label": "Text of this passage" }, shown);
  const who = speakers.length ? h("select", { "aria-label": "Speaker of this passage" },
    speakers.map((one) => h("option", { value: one.label, selected: one.label === speaker }, one.shown))) : null;
  const author = h("input", { type: "text", maxlength: "100", value: localStorage.getItem(AUTHOR) ?? "", placeholder: "Your name", "aria-label": "Your name" });
  const other = h("p", { class: "card error small", role: "alert", hidden: true });
  const save = h("button", { class: "primary small" }, "Save");
  const form = h("form", { class: "editor", onsubmit: (event) => { event.preventDefault(); keep(); } },
    input, other, h("div", { class: "row" }, who, author, save, h("button", { type: "button", class: "small", onclick: cancel }, "Cancel")));
  form.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") cancel();
    if (event.key === "Enter" && event.target === input && !event.isComposing) {
      event.preventDefault(); // a passage has no lines
      keep();
    }
  });
  async function keep() {
    const corrections = transcript.corrections ?? [];
    const moved = who && who.value !== speaker ? who.value : null;
    const change = moved ? whole(corrections) : changeOf(transcript.words, corrections, range, input.value);
    if (!change) return cancel();
    save.disabled = true;
    try {
      localStorage.setItem(AUTHOR, author.value.trim());
      const edit = await send("POST", `/v1/jobs/${job.id}/edits${query}`, { ...change, speaker: moved, seen, author: author.value.trim() || null });
      await done(edit);
    } catch (error) {
      save.disabled = false;
      if (error.code !== "edited") return notice(error.message, true);
      seen = error.body.other.revision;
      other.hidden = false;
      other.replaceChildren(`${error.body.other.author} changed these words meanwhile, to “${error.body.other.text ?? "the same words"}”. Save again to replace that with yours.`);
      save.textContent = "Replace";
    }
  }
  // All of the paragraph, where its speaker changes.
  function whole(corrections) {
    return { first_word: origin(corrections, range[0], false), last_word: origin(corrections, range[1], true),
      text: input.value.trim().split(/\s+/).join(" ") };
  }
  requestAnimationFrame(() => {
    const caret = at > range[0] ? textOf(range[0], at).length + 1 : 0;
    input.focus();
    input.setSelectionRange(caret, caret);
    form.scrollIntoView({ block: "nearest" });
  });
  return form;
}

// Who corrected what, with a way back. `spread` is asked for other places of a corrected name.
export function historyOf(job, transcript, done, query = "", spread = null) {
  const list = h("ol", { class: "small history" });
  async function show() {
    const { items } = await get(`/v1/jobs/${job.id}/edits${query}`);
    if (!items.length) list.before(h("p", { class: "quiet small" }, "None yet. Point at a passage and press ✎, or press E."));
    list.replaceChildren(...items.map((one) => h("li", { value: String(one.revision), class: one.stands ? null : "quiet" },
      one.author, ", ", moment(one.created_at), ": ", what(one), " ",
      one.stands ? h("button", { type: "button", class: "small", onclick: () => undo(one) }, "Undo") : null,
      one.stands && one.text && one.from_job === null ? [" ", h("button", { type: "button", class: "small", onclick: () => spread(one) }, "Elsewhere…")] : null)));
  }
  function what(one) {
    if (one.undoes !== null) return `undid ${one.undoes}`;
    const before = (transcript.corrections ?? []).find((each) => each.revision === one.revision);
    const place = before && before.words ? ` at ${clock(transcript.words[before.word].start)}` : "";
    const now = one.text === null ? "" : one.text ? `“${one.text}”` : "deleted";
    const like = one.from_job === null ? null : [", like ", h("a", { href: `#/jobs/${one.from_job}` }, "a correction elsewhere")];
    return [before && one.text !== null ? [h("del", {}, before.original), " "] : null, now, one.speaker ? ` (${one.speaker})` : "", place, like];
  }
  async function undo(one) {
    try {
      await send("POST", `/v1/jobs/${job.id}/edits/${one.revision}/undo${query}`, { author: localStorage.getItem(AUTHOR) || null });
      await done();
    } catch (error) {
      notice(error.message, true);
    }
  }
  const section = h("section", {}, h("h2", {}, "Corrections"), list);
  show().catch((error) => notice(error.message, true));
  return section;
}
