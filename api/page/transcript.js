// The words of a recording beside its sound: the word being played is lit, a click plays from a word, and words of low
// confidence are marked. A recording of 20 hours has 200,000 words: the first ones are shown while the others arrive, and
// all are drawn in slices, so that the browser's own search finds each. What is out of view costs no layout (CSS), and
// what comes into view first is drawn first.

import { closedAt, closuresOf } from "./closures.js";
import { count, clock, fill, h, notice } from "./dom.js";
import { downloadsOf } from "./downloads.js";
import { editorOf, historyOf } from "./edits.js";
import { findBar } from "./find.js";
import { Problem, ask, send } from "./http.js";
import { helpOf } from "./keys.js";
import { readRecord, slices } from "./record.js";
import { playerOf } from "./sound.js";
import { isApart, joinWords } from "./spacing.js";
import { badge, speakersOf } from "./speakers.js";
import { offerSpread, openSpread } from "./spread.js";

export { FORMATS } from "./downloads.js";
export const DOUBT = 0.5;
const PAUSE_S = 2; // as in the format `paragraphs`
const PARAGRAPH_CHARACTERS = 700;
const FIRST_WORDS = 300; // fill a screen
const GROUP = 6; // paragraphs that are drawn together
const LINE_CHARACTERS = 64;
const NAME_CHARACTERS = 12;
const LINE_PX = 30;
const GAP_PX = 8;
const STILL_FRAMES = 20;
const DISFLUENCIES = { filler: "a filler", repetition: "said twice", false_start: "a false start" };

const KEYS = [
  ["Space", "play or pause"], ["J  L", "5 seconds back, forward"], ["<  >", "slower, faster"],
  ["D  Shift+D", "next doubtful word, the one before"], ["W", "next sentence that nobody said"], ["← →", "from word to word"], ["Enter", "play from the word"],
  ["E", "correct the passage"], ["Enter  Esc", "in the editor: save, leave"], ["/", "find in this text"],
  ["?", "these keys"],
];

// Draws into `root`, and into the places around it: the menu of downloads, and the corrections in the side panel. After a
// correction the words are drawn anew behind those that are shown, and the reader stays where they are.
export function showTranscript(root, job, places, from = null) {
  let left = false;
  let view = null;
  const failed = (error) => fill(root, h("p", { class: "card error", role: "alert" }, error.message));
  async function draw(target, at) {
    const next = await transcriptView(target, job, places, at, again, show);
    if (left) return next.leave();
    view = next;
  }
  // With or without what is closed to readers.
  async function show(opened) {
    const before = places.opened;
    places.opened = opened;
    try {
      await again();
    } catch (error) {
      places.opened = before;
      throw error;
    }
  }
  async function again() {
    const behind = h("div");
    const { seconds, place } = view;
    const reader = place();
    const before = view;
    const next = await transcriptView(behind, job, places, null, again, show);
    if (left) return next.leave();
    before.leave();
    view = next;
    root.replaceChildren(...behind.childNodes);
    next.restore(reader);
    next.focus();
    next.seek(seconds());
  }
  draw(root, from).catch((error) => left || failed(error));
  return { again: () => view && again(), leave: () => {
    left = true;
    view?.leave();
  } };
}

async function transcriptView(root, job, places, from, again, show) {
  const closed = places.opened ? "?closed=true" : "";
  const asking = ask(`/v1/jobs/${job.id}/transcript${closed}`); // before the sound: reading comes first
  const asked = audioLink(job.id, closed);
  const answer = await asking;
  const seen = Number(answer.headers.get("X-Spool-Revision"));
  const page = h("div", { class: "transcript", tabindex: "0", role: "group", "aria-label": "Transcript. Press ? for its keys." });
  let early = null;
  const transcript = await readRecord(answer, (words) => {
    if (early || words.length < FIRST_WORDS) return;
    early = h("div", { class: "transcript" }, h("div", { class: "segment" }, h("span", { class: "at quiet" }, clock(words[0].start)),
      h("p", {}, joinWords(words.slice(0, FIRST_WORDS).map((word) => word.text)))));
    root.append(early);
  });
  const { words, segments } = transcript;
  const player = playerOf(await asked, transcript.audio.duration, light);
  const shown = [];
  const speakers = speakersOf(transcript, job, player.play, () => rename(), (only) => filter(only));
  const many = !speakers.any && segments.some((segment) => segment.channel);
  const paragraphs = paragraphsOf(segments);
  const placed = placesOf(words, paragraphs);
  const order = inTime(words, placed);
  const starts = order.map((at) => words[at].start);
  for (const one of segments) if (one.flagged) for (let at = one.first_word; at <= one.last_word; at++) words[at].unsaid = true;
  // Where each sentence begins that nobody said.
  const unsaid = order.flatMap((word, at) => words[word].unsaid && !words[order[at - 1]]?.unsaid ? [at] : []);
  const elements = [];
  let lit = [];
  let current = -1;
  let only = null;
  let gone = false;
  let built = false;

  function paragraph(segment, at) {
    const element = h("div", { class: "segment", "data-speaker": segment.speaker, hidden: only !== null && !only.has(segment.speaker) },
      h("button", { type: "button", class: "at", tabindex: "-1", "data-at": String(segment.start), "aria-label": `Play from ${clock(segment.start)}` },
        clock(segment.start), many ? h("span", { class: "small" }, ` ch ${segment.channel + 1}`) : null),
      h("p", {}, speakers.any && segment.speaker && segment.speaker !== paragraphs[at - 1]?.speaker
        ? [h("strong", { class: "who" }, badge(speakers.at(segment.speaker)), h("span", { "data-who": segment.speaker }, speakers.name(segment.speaker))), " "]
        : null, spans(words, segment, shown, transcript)),
      h("button", { type: "button", class: "edit small", tabindex: "-1", "aria-label": `Correct the passage at ${clock(segment.start)}` }, "✎"));
    elements[at] = element;
    return element;
  }
  // Groups have their likely height before they have words, so that the length of the page tells the recording's.
  const groups = [];
  for (let at = 0; at < paragraphs.length; at += GROUP) {
    const group = h("div", { class: "group" });
    const height = paragraphs.slice(at, at + GROUP).reduce((sum, one) => sum + Math.ceil((one.length + NAME_CHARACTERS) / LINE_CHARACTERS) * LINE_PX + GAP_PX, 0);
    group.style.containIntrinsicSize = `auto ${height}px`;
    groups.push(group);
  }
  page.append(...groups);
  const seenFirst = new IntersectionObserver((entries) => entries.forEach((one) => one.isIntersecting && draw(groups.indexOf(one.target))), { rootMargin: "50%" });
  function draw(group) {
    if (groups[group].firstChild) return;
    const at = group * GROUP;
    groups[group].append(...paragraphs.slice(at, at + GROUP).map((one, place) => paragraph(one, at + place)));
    seenFirst.unobserve(groups[group]);
  }
  // The word at this place of the order, drawn if need be.
  function drawn(at) {
    const word = order[at];
    if (word === undefined) return null;
    if (!shown[word]) draw(Math.floor(placed[word] / GROUP));
    return shown[word];
  }
  async function build() {
    groups.forEach((one) => seenFirst.observe(one));
    const breathe = slices();
    for (let group = 0; group < groups.length && !gone; group++) {
      draw(group);
      await breathe();
    }
    built = true;
  }
  // Other places of a name that was corrected may be in this recording, too.
  const changed = (jobs) => { if (jobs.has(job.id)) again().catch((error) => notice(error.message, true)); };
  const spread = (one) => openSpread(job.id, one.revision, closed, changed).catch((error) => notice(error.message, true));
  async function corrected(one) {
    await again();
    offerSpread(job.id, one, closed, changed).catch((error) => notice(error.message, true));
  }
  // The editor takes the place of the words, with the caret at the word where the reader is.
  function edit(element) {
    const segment = paragraphs[elements.indexOf(element)];
    const text = element.querySelector("p");
    if (!segment || !text) return;
    if (transcript.closed?.length && !places.opened) return notice("Something of this recording is closed. Show it first, under Details: words are counted with it.");
    const people = (transcript.speakers ?? []).map((one) => ({ label: one.label, shown: speakers.name(one.label) }));
    const word = order[current] >= segment.first_word && order[current] <= segment.last_word ? order[current] : segment.first_word;
    const form = editorOf(job, transcript, seen, [segment.first_word, segment.last_word], people, segment.speaker, corrected, () => {
      form.replaceWith(text);
      page.focus({ preventScroll: true });
    }, word, closed);
    text.replaceWith(form);
  }
  // The passage of the word where the reader is, else of the one that was played, else the first in view.
  function editHere() {
    const word = shown[order[current]] ?? lit[0];
    edit(word?.closest(".segment") ?? elements[place().at] ?? elements[0]);
  }
  function place() {
    const top = page.parentElement?.querySelector(".player")?.getBoundingClientRect().bottom ?? 0;
    const group = Math.max(0, groups.findIndex((one) => one.getBoundingClientRect().bottom > top));
    draw(group);
    const inside = elements.slice(group * GROUP, (group + 1) * GROUP);
    const at = group * GROUP + Math.max(0, inside.findIndex((one) => !one.hidden && one.getBoundingClientRect().bottom > top));
    return { at, start: paragraphs[at]?.start ?? 0, top: elements[at]?.getBoundingClientRect().top ?? 0 };
  }
  function restore(reader) {
    const at = Math.max(0, last(paragraphs.map((one) => one.start), reader.start));
    draw(Math.floor(at / GROUP));
    const element = elements[at];
    const move = () => element && scrollBy(0, element.getBoundingClientRect().top - reader.top);
    move();
    requestAnimationFrame(move); // what came into view has got its height
  }
  function rename() {
    for (const one of page.querySelectorAll("[data-who]")) one.textContent = speakers.name(one.dataset.who);
  }
  function filter(wanted) {
    only = wanted;
    for (const one of elements) if (one) one.hidden = only !== null && !only.has(one.dataset.speaker);
  }
  function light(now) {
    speakers.bar?.move(now);
    const next = [];
    for (let at = last(starts, now); at >= 0 && starts[at] > now - 5; at--) {
      if (words[order[at]].end >= now && shown[order[at]]) next.push(shown[order[at]]);
    }
    for (const one of lit) if (!next.includes(one)) one.classList.remove("lit");
    for (const one of next) one.classList.add("lit");
    if (next.length && !lit.includes(next[0]) && !player.audio.paused && !page.querySelector("form")) keepInView(next[0]);
    lit = next;
  }
  function go(at, block = "nearest") {
    shown[order[current]]?.classList.remove("here");
    current = Math.min(Math.max(at, 0), order.length - 1);
    const word = drawn(current);
    word?.classList.add("here");
    word?.scrollIntoView({ block });
  }
  // Where the address names a time.
  async function begin(seconds) {
    player.play(seconds);
    const at = Math.max(0, last(starts, seconds + 0.001));
    while (!gone && !page.isConnected) await new Promise((next) => requestAnimationFrame(next));
    if (gone) return;
    go(at, "center");
    await new Promise((next) => requestAnimationFrame(next));
    shown[order[current]].scrollIntoView({ block: "center" }); // by the heights it has now
    await keepHere();
  }
  // What is above the word gets its height as it is drawn, and can push the word out of view: it is brought back until all
  // is drawn and still, or the reader moves.
  async function keepHere() {
    const reader = new AbortController();
    for (const kind of ["wheel", "pointerdown", "keydown"]) addEventListener(kind, () => reader.abort(), { signal: reader.signal, passive: true });
    for (let still = 0; (still < STILL_FRAMES || !built) && !gone && !reader.signal.aborted; still++) {
      await new Promise((next) => requestAnimationFrame(next));
      const word = shown[order[current]];
      const { top, bottom } = word.getBoundingClientRect();
      if (reader.signal.aborted || (top >= 0 && bottom <= innerHeight)) continue;
      word.scrollIntoView({ block: "center" });
      still = 0;
    }
    reader.abort();
  }
  const disfluent = words.reduce((sum, word) => sum + Boolean(word.disfluency), 0);
  const omits = words.some((word) => word.omitted);
  const doubtfuls = order.reduce((sum, at) => sum + (words[at].confidence < DOUBT), 0);
  function doubtful(step) {
    let at = current < 0 && step < 0 ? order.length : current;
    do at += step; while (order[at] !== undefined && words[order[at]].confidence >= DOUBT);
    if (order[at] === undefined) return notice(step > 0 ? "No doubtful word follows." : "No doubtful word comes before.");
    go(at);
  }
  function nextUnsaid() {
    go(unsaid.find((at) => at > current) ?? unsaid[0] ?? current);
    if (!unsaid.length) notice("The witness found no sentence that nobody said.");
  }
  const finder = findBar(words, order, drawn, go);
  function press(event) {
    const key = event.key;
    if (key.toLowerCase() === "d") doubtful(key === "d" ? 1 : -1);
    else if (key.toLowerCase() === "w") nextUnsaid();
    else if (key.toLowerCase() === "e") editHere();
    else if (key === "/") {
      bar.classList.add("finding");
      finder.focus();
    } else if (key === "?") help.show();
    else if (!player.control(key)) return false;
    event.preventDefault();
    return true;
  }
  function anywhere(event) {
    const typing = event.target.closest?.("input, select, textarea, button, a, dialog, summary, [role=region], [role=slider]");
    if (typing || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    press(event);
  }
  document.addEventListener("keydown", anywhere);
  chosen = null;
  const choose = () => { chosen = timesOf(getSelection(), page, words) ?? chosen; };
  document.addEventListener("selectionchange", choose);
  page.addEventListener("click", (event) => {
    const pencil = event.target.closest(".edit");
    if (pencil) return edit(pencil.closest(".segment"));
    const target = event.target.closest("[data-at],[data-word]");
    if (!target) return;
    if (target.dataset.at) return player.play(Number(target.dataset.at));
    go(order.indexOf(Number(target.dataset.word)));
    player.play(words[Number(target.dataset.word)].start);
  });
  page.addEventListener("mouseover", ({ target }) => {
    const word = words[target.dataset?.word];
    if (word) target.title = `${clock(word.start, true)} · ${word.corrected ? "corrected" : `confidence ${word.confidence}`}${word.unsaid ? " · nobody said this, as far as the witness hears" : ""}${word.overlap ? " · another speaker speaks too" : ""}${word.disfluency ? ` · ${DISFLUENCIES[word.disfluency]}` : ""}${word.omitted ? ", left out of texts and subtitles" : ""}`;
  });
  page.addEventListener("keydown", (event) => {
    if (event.target !== page || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowRight") go(current + 1);
    else if (event.key === "ArrowLeft") go(current - 1);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(order.length - 1);
    else if (event.key === "Enter" && current >= 0) player.play(starts[current]);
    else {
      press(event);
      return;
    }
    event.preventDefault();
  });

  const help = helpOf("Keys of the transcript", KEYS);
  const bar = h("div", { class: "player" }, player.audio ? [player.audio, player.toggle, player.time] : h("span", { class: "quiet small nosound" }, (await asked).message),
    h("div", { class: "lanes" }, player.wave, speakers.bar?.element), player.speed,
    h("button", { type: "button", class: "seek", "aria-label": "Find in this text", onclick: () => {
      if (bar.classList.toggle("finding")) finder.focus();
    } }, "⌕"), finder.element);
  const tools = h("div", { class: "row tools" }, speakers.any ? speakers.chips : null,
    doubtfuls ? h("button", { type: "button", class: "small", title: "Go to the next one (D)", onclick: () => doubtful(1) },
      h("span", { class: "legend doubt" }, count(doubtfuls, "doubtful word", "doubtful words"))) : null,
    unsaid.length ? h("button", { type: "button", class: "small", title: "Go to the next one (W). The witness judges sentences: it knows little of words of one or two sounds, or of ones that sound alike.", onclick: () => nextUnsaid() },
      h("span", { class: "legend unsaid" }, count(unsaid.length, "sentence nobody said", "sentences nobody said"))) : null,
    disfluent ? h("span", { class: "small quiet" }, h("span", { class: `legend ${omits ? "omitted" : "disfluent"}` }, count(disfluent, "filler or repetition", "fillers and repetitions")), omits ? ", left out of texts" : "") : null,
    words.some((word) => word.overlap) ? h("span", { class: "small quiet" }, h("span", { class: "legend overlap" }, "dotted"), ": another speaker speaks too") : null,
    help.button);
  fill(root, bar, tools, page);
  build();
  if (!words.length) page.append(h("p", { class: "quiet" }, "No words were found in this recording."));
  fill(places.downloads, downloadsOf(job, transcript));
  fill(places.history, historyOf(job, transcript, again, closed, spread));
  fill(places.closures, closuresOf(job, transcript, Boolean(places.opened), show));
  player.draw(words);
  if (from !== null && Number.isFinite(Number(from)) && words.length) begin(Number(from));
  return { place, restore, focus: () => page.focus({ preventScroll: true }), seconds: player.seconds, seek: (seconds) => { if (seconds) player.seek(seconds); }, leave: () => {
    gone = true;
    seenFirst.disconnect();
    document.removeEventListener("keydown", anywhere);
    document.removeEventListener("selectionchange", choose);
    chosen = null;
    player.leave();
  } };
}

// From when to when the selected words are spoken; null where the selection is not in the transcript. One that was given up
// there is no stretch.
function timesOf(selection, page, words) {
  if (!selection.rangeCount || !page.contains(selection.anchorNode)) return null;
  const range = selection.getRangeAt(0);
  const own = range.collapsed ? [] : [...page.querySelectorAll("[data-word]")].filter((word) => range.intersectsNode(word)).map((word) => words[word.dataset.word]);
  return own.length ? { start: Math.min(...own.map((word) => word.start)), end: Math.max(...own.map((word) => word.end)) } : {};
}

// The times of the words that were selected last, for what is done with a stretch; none without a selection.
export const selectedTimes = () => chosen ?? {};
let chosen = null;

// The paragraph of each word, -1 for words that no segment has.
function placesOf(words, paragraphs) {
  const placed = new Int32Array(words.length).fill(-1);
  paragraphs.forEach((one, place) => {
    for (let at = one.first_word; at <= one.last_word; at++) if (words[at].channel === one.channel) placed[at] = place;
  });
  return placed;
}

// The words that are shown, by time.
function inTime(words, placed) {
  const order = [];
  let sorted = true;
  for (let at = 0; at < words.length; at++) {
    if (placed[at] < 0) continue;
    sorted &&= !order.length || words[order.at(-1)].start <= words[at].start;
    order.push(at);
  }
  return sorted ? order : order.sort((a, b) => words[a].start - words[b].start);
}

// Segments joined as in the format `paragraphs`: until a pause, another channel or speaker, or a long text's sentence end.
function paragraphsOf(segments) {
  const joined = [];
  for (const segment of segments) {
    const last = joined.at(-1);
    const turns = !last || segment.channel !== last.channel || segment.speaker !== last.speaker
      || segment.start - last.end >= PAUSE_S || (last.length + 1 >= PARAGRAPH_CHARACTERS && last.ended);
    const ended = /[.?!…]$/.test(segment.text);
    if (turns) joined.push({ ...segment, length: segment.text.length, ended });
    else Object.assign(last, { end: segment.end, last_word: segment.last_word, length: last.length + 1 + segment.text.length, ended });
  }
  return joined;
}

function spans(words, segment, shown, transcript) {
  const line = [];
  for (let at = segment.first_word; at <= segment.last_word; at++) {
    const word = words[at];
    if (word.channel !== segment.channel) continue;
    shown[at] = document.createElement("span");
    shown[at].className = `word${word.confidence < DOUBT ? " doubt" : ""}${word.unsaid ? " unsaid" : ""}${word.overlap ? " overlap" : ""}${word.corrected ? " corrected" : ""}${word.omitted ? " omitted" : word.disfluency ? " disfluent" : ""}`;
    shown[at].dataset.word = at;
    shown[at].textContent = word.text;
    const until = transcript.closed && closedAt(transcript, word.start, word.end);
    if (until) {
      shown[at].classList.add("closed");
      if (word.text === "[closed]") shown[at].textContent = `[${until}]`;
    }
    if (line.length && isApart(line.at(-1).textContent, word.text)) line.push(document.createTextNode(" "));
    line.push(shown[at]);
  }
  return line;
}

function last(starts, now) {
  let low = 0, high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= now) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function keepInView(word) {
  const box = word.getBoundingClientRect();
  if (box.top < 200 || box.bottom > innerHeight - 60) word.scrollIntoView({ block: "center" });
}

export async function audioLink(id, closed = "") {
  try {
    return (await send("POST", `/v1/jobs/${id}/audio-link${closed}`)).url;
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
}
