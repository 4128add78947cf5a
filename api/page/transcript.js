// The transcript beside the recording: the word being played is highlighted, a click plays from a word, and words of
// low confidence are marked.

import { clock, h, notice } from "./dom.js";
import { editorOf, historyOf } from "./edits.js";
import { Problem, ask, save, send } from "./http.js";
import { badge, speakersOf } from "./speakers.js";

export const FORMATS = ["txt", "paragraphs", "srt", "vtt", "ttml", "docx", "eaf", "textgrid", "ohms", "tsv", "ctm", "json"];
const DOUBT = 0.5;
const PAUSE_S = 2; // as in the format `paragraphs`
const PARAGRAPH_CHARACTERS = 700;
const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3];
const KEYS = "Keys: Space plays and pauses, J and L skip 5 s back and forward, < and > change the speed, D goes to the next "
  + "doubtful word (Shift+D to the one before), arrows go from word to word, Enter plays from the word, "
  + "E edits its passage.";

// A correction shows the transcript anew, with the player and the page where they were.
export async function showTranscript(root, job, from = null) {
  const before = root.childElementCount;
  let view = await transcriptView(root, job, from, again);
  async function again() {
    const { seconds } = view;
    const at = scrollY;
    view.leave();
    while (root.childElementCount > before) root.lastElementChild.remove();
    view = await transcriptView(root, job, null, again);
    view.seek(seconds());
    scrollTo(0, at);
  }
  return { leave: () => view.leave() };
}

async function transcriptView(root, job, from, again) {
  const answer = await ask(`/v1/jobs/${job.id}/transcript`);
  const seen = Number(answer.headers.get("X-Spool-Revision"));
  const transcript = await answer.json();
  const link = await audioLink(job.id);
  const audio = typeof link === "string" ? h("audio", { controls: true, preload: "metadata", src: link }) : null;
  audio?.addEventListener("error", () => notice("Your browser cannot play this recording.", true));
  const words = transcript.words;
  const shown = [];
  const speakers = speakersOf(transcript, job, play, () => rename(), (only) => filter(only));
  const many = !speakers.any && transcript.segments.some((segment) => segment.channel);
  const page = h("div", { class: "transcript", tabindex: "0", role: "group",
    "aria-label": `Transcript. ${KEYS}` },
  paragraphsOf(transcript.segments).map((segment, at, all) => editable(segment, h("div", { class: "segment", "data-speaker": segment.speaker },
    h("button", { type: "button", tabindex: "-1", "data-at": String(segment.start), "aria-label": `Play from ${clock(segment.start)}` },
      clock(segment.start), many ? h("span", { class: "small" }, ` ch ${segment.channel + 1}`) : null),
    h("p", {}, speakers.any && segment.speaker && segment.speaker !== all[at - 1]?.speaker
      ? [h("strong", { class: "who" }, badge(speakers.at(segment.speaker)), h("span", { "data-who": segment.speaker }, speakers.name(segment.speaker))), " "]
      : null, spans(words, segment, shown))))));
  if (!words.length) page.append(h("p", { class: "quiet" }, "No words were found in this recording."));

  const order = words.map((_, at) => at).filter((at) => shown[at]).sort((a, b) => words[a].start - words[b].start);
  const starts = order.map((at) => words[at].start);
  let lit = [];
  let current = -1;

  // Each paragraph has a button that puts an editor in its place.
  function editable(segment, element) {
    const text = element.lastElementChild;
    const edit = h("button", { type: "button", class: "edit small", tabindex: "-1", "aria-label": `Edit the passage at ${clock(segment.start)}`, onclick: () => {
      const people = (transcript.speakers ?? []).map((one) => ({ label: one.label, shown: speakers.name(one.label) }));
      const form = editorOf(job, transcript, seen, [segment.first_word, segment.last_word], people, segment.speaker, again, () => form.replaceWith(text));
      text.replaceWith(form);
    } }, "✎");
    element.append(edit);
    return element;
  }
  function rename() {
    for (const one of page.querySelectorAll("[data-who]")) one.textContent = speakers.name(one.dataset.who);
  }
  function filter(only) {
    for (const one of page.querySelectorAll(".segment")) one.hidden = only !== null && !only.has(one.dataset.speaker);
  }
  function play(seconds) {
    if (!audio) return;
    audio.currentTime = seconds;
    audio.play().catch(() => {});
  }
  // Where the address names a time. A browser that refuses to play unasked leaves the recording there.
  function begin(seconds) {
    play(seconds);
    go(Math.max(0, last(starts, seconds + 0.001)));
    shown[order[current]]?.scrollIntoView({ block: "center" });
  }
  function light() {
    const now = audio.currentTime;
    speakers.bar?.move(now);
    const next = [];
    for (let at = last(starts, now); at >= 0 && starts[at] > now - 5; at--) {
      if (words[order[at]].end >= now) next.push(shown[order[at]]);
    }
    for (const one of lit) if (!next.includes(one)) one.classList.remove("lit");
    for (const one of next) one.classList.add("lit");
    if (next.length && !lit.includes(next[0]) && !audio.paused) keepInView(next[0]);
    lit = next;
  }
  function go(at) {
    shown[order[current]]?.classList.remove("here");
    current = Math.min(Math.max(at, 0), order.length - 1);
    const word = shown[order[current]];
    word?.classList.add("here");
    word?.scrollIntoView({ block: "nearest" });
  }
  // The keys that work anywhere on the page of a job, except where text is typed.
  function control(key) {
    if (!audio) return false;
    if (key === " ") audio.paused ? audio.play().catch(() => {}) : audio.pause();
    else if (key.toLowerCase() === "j") audio.currentTime = Math.max(0, audio.currentTime - 5);
    else if (key.toLowerCase() === "l") audio.currentTime = Math.min(audio.duration || Infinity, audio.currentTime + 5);
    else if (key === "<" || key === ">") faster(key === ">" ? 1 : -1);
    else return false;
    return true;
  }
  function faster(step) {
    const at = SPEEDS.findIndex((one) => one >= audio.playbackRate);
    audio.playbackRate = SPEEDS[Math.min(Math.max(at + step, 0), SPEEDS.length - 1)];
  }
  function doubtful(step) {
    let at = current < 0 && step < 0 ? order.length : current;
    do at += step; while (order[at] !== undefined && words[order[at]].confidence >= DOUBT);
    if (order[at] === undefined) return notice(step > 0 ? "No doubtful word follows." : "No doubtful word comes before.");
    go(at);
  }
  function anywhere(event) {
    const typing = event.target.closest?.("input, select, textarea, button, a, audio, dialog, summary, [role=region]");
    if (typing || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.toLowerCase() === "d") doubtful(event.key === "d" ? 1 : -1);
    else if (!control(event.key)) return;
    event.preventDefault();
  }
  document.addEventListener("keydown", anywhere);
  const speed = h("select", { "aria-label": "Speed", onchange: () => { audio.playbackRate = Number(speed.value); } },
    SPEEDS.map((one) => h("option", { value: String(one), selected: one === 1 }, `${one}×`)));
  audio?.addEventListener("ratechange", () => { speed.value = String(audio.playbackRate); });
  page.addEventListener("click", (event) => {
    const target = event.target.closest("[data-at],[data-word]");
    if (!target) return;
    if (target.dataset.at) return play(Number(target.dataset.at));
    go(order.indexOf(Number(target.dataset.word)));
    play(words[Number(target.dataset.word)].start);
  });
  page.addEventListener("keydown", (event) => {
    if (event.target !== page || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowRight") go(current + 1);
    else if (event.key === "ArrowLeft") go(current - 1);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(order.length - 1);
    else if (event.key === "Enter" && current >= 0) play(starts[current]);
    else if (event.key.toLowerCase() === "e") (shown[order[Math.max(current, 0)]]?.closest(".segment") ?? page).querySelector(".edit")?.click();
    else if (event.key.toLowerCase() === "d") doubtful(event.key === "d" ? 1 : -1);
    else if (!control(event.key)) return;
    event.preventDefault();
  });
  let ticking = 0;
  const tick = () => { light(); ticking = audio.paused ? 0 : requestAnimationFrame(tick); };
  audio?.addEventListener("play", () => { ticking ||= requestAnimationFrame(tick); });
  audio?.addEventListener("seeked", light);

  const digits = h("input", { type: "checkbox", id: "digits" });
  root.append(
    h("div", { class: "player" }, audio ?? h("p", { class: "quiet" }, link.message), speakers.bar?.element, searchBar(words, shown, order, go, audio ? h("label", { class: "inline" }, "Speed", speed) : null)),
    speakers.any ? speakers.chips : "",
    h("p", { class: "row small" }, "Download", forms(transcript).map((form) => h("button", { type: "button", class: "small",
      onclick: () => save(`/v1/jobs/${job.id}/transcript?format=${form}${digits.checked ? `&digits=${transcript.language ?? "en"}` : ""}`, fileName(job.name, form))
        .catch((error) => notice(error.message, true)) }, form)), h("label", { class: "inline small" }, digits, "Numbers as digits")),
    h("p", { class: "quiet small" }, "Words with a wavy underline have a confidence below ", String(DOUBT), ".",
      words.some((word) => word.overlap) ? " Over words with a dotted underline another speaker speaks too." : null, h("span", { class: "keys" }, ` ${KEYS}`)),
    historyOf(job, transcript, again),
    page);
  if (from !== null && Number.isFinite(Number(from)) && words.length) requestAnimationFrame(() => begin(Number(from)));
  return { seconds: () => audio?.currentTime ?? 0, seek: (seconds) => { if (audio && seconds) audio.currentTime = seconds; }, leave: () => {
    document.removeEventListener("keydown", anywhere);
    cancelAnimationFrame(ticking);
    audio?.pause();
  } };
}

// Segments joined as in the format `paragraphs`: until a pause, another channel or speaker, or a long text's sentence end.
function paragraphsOf(segments) {
  const joined = [];
  for (const segment of segments) {
    const last = joined.at(-1);
    const turns = !last || segment.channel !== last.channel || segment.speaker !== last.speaker
      || segment.start - last.end >= PAUSE_S || (last.text.length + 1 >= PARAGRAPH_CHARACTERS && /[.?!…]$/.test(last.text));
    if (turns) joined.push({ ...segment });
    else Object.assign(last, { end: segment.end, last_word: segment.last_word, text: `${last.text} ${segment.text}` });
  }
  return joined;
}

function forms(transcript) {
  return [...FORMATS, ...(transcript.diarization ? ["rttm"] : []), ...(transcript.lattice?.length ? ["lattice", "kaldi"] : [])];
}

function spans(words, segment, shown) {
  const line = [];
  for (let at = segment.first_word; at <= segment.last_word; at++) {
    const word = words[at];
    if (word.channel !== segment.channel) continue;
    shown[at] = h("span", { class: `word${word.confidence < DOUBT ? " doubt" : ""}${word.overlap ? " overlap" : ""}${word.corrected ? " corrected" : ""}`, "data-word": String(at),
      title: `${clock(word.start, true)} · ${word.corrected ? "corrected" : `confidence ${word.confidence}`}${word.overlap ? " · another speaker speaks too" : ""}` }, word.text);
    line.push(shown[at], " ");
  }
  return line;
}

function searchBar(words, shown, order, go, more) {
  let matches = [];
  let at = -1;
  const status = h("span", { class: "quiet small", role: "status" });
  const input = h("input", { type: "search", placeholder: "Search the transcript", "aria-label": "Search the transcript" });
  const plain = (text) => text.toLowerCase().normalize("NFKD").replace(/[^\p{L}\p{N}'\s]/gu, "");
  const texts = order.map((one) => plain(words[one].text));
  function search() {
    for (const one of shown) one?.classList.remove("found");
    const wanted = plain(input.value).trim().split(/\s+/).filter(Boolean);
    matches = [];
    at = -1;
    if (wanted.length) {
      for (let from = 0; from + wanted.length <= texts.length; from++) {
        const hit = wanted.every((text, each) => each === wanted.length - 1
          ? texts[from + each].startsWith(text) : texts[from + each] === text);
        if (!hit) continue;
        matches.push(from);
        for (let each = 0; each < wanted.length; each++) shown[order[from + each]].classList.add("found");
      }
    }
    status.textContent = wanted.length ? `${matches.length} found` : "";
  }
  function next(step) {
    if (!matches.length) return;
    at = (at + step + matches.length) % matches.length;
    status.textContent = `${at + 1} of ${matches.length}`;
    go(matches[at]);
  }
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    next(event.shiftKey ? -1 : 1);
  });
  return h("div", { class: "row" }, input,
    h("button", { type: "button", "aria-label": "Previous match", onclick: () => next(-1) }, "↑"),
    h("button", { type: "button", "aria-label": "Next match", onclick: () => next(1) }, "↓"), status, more);
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

const fileName = (name, form) => `${name.replace(/\.[^.]*$/, "").replace(/[\\/:*?"<>|]/g, "_")}.${{ paragraphs: "paragraphs.txt", textgrid: "TextGrid", ohms: "ohms.vtt" }[form] ?? form}`;

async function audioLink(id) {
  try {
    return (await send("POST", `/v1/jobs/${id}/audio-link`)).url;
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
}
