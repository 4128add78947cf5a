// A place to work through the passages that people should listen to, the most doubtful first: each is played, accepted or
// corrected here, by keys. The error rate that a random sample shows stands beside them.

import { clock, fill, h, notice, number } from "./dom.js";
import { AUTHOR, changeOf } from "./edits.js";
import { ask, get, send } from "./http.js";
import { helpOf } from "./keys.js";
import { readRecord } from "./record.js";
import { isApart } from "./spacing.js";
import { offerSpread } from "./spread.js";
import { DOUBT, audioLink } from "./transcript.js";

const REASONS = { confidence: "uncertain words", versions: "other words in another version", speech: "speech and words do not match", evidence: "nobody said this", language: "language changes" };
const CHOSEN = { closed: "closed passages too", checked: "checked", by: "recordings" };
const FILTERS = {
  project: ["Project", { maxlength: "64" }],
  batch: ["Batch", { maxlength: "64" }],
  tag: ["Tag", { maxlength: "300", placeholder: "key or key=value" }],
  model: ["Model", { maxlength: "200" }],
};
const SCOPE = ["project", "batch", "model"];
const OF = ["job", "sample"]; // what a link chose; the form has no field for them
const PAGE = 25;
const AHEAD = 8; // passages that are there before one gets to them
const AROUND_S = 0.4;
const MARKED_WORDS = 30000; // of longer recordings the words are not fetched to mark a few
const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];
const KEYS = [
  ["Space", "play the passage, or pause"], ["R", "play it again from its start"], ["<  >", "slower, faster"],
  ["Enter", "accept: the words are right"], ["E", "correct the words; Enter saves, Esc leaves"],
  ["N  P", "next passage, the one before"], ["U", "undo the last decision"], ["O", "open the recording here"], ["?", "these keys"],
];

export async function showReview(root, query) {
  const byRecording = query.get("by") === "recording";
  root.classList.add("workplace");
  const author = h("input", { type: "text", maxlength: "100", value: localStorage.getItem(AUTHOR) ?? "", placeholder: "Your name",
    onchange: () => localStorage.setItem(AUTHOR, author.value.trim()) });
  const by = () => author.value.trim() || null;
  const status = h("p", { class: "quiet", role: "status" });
  const rates = await ratesOf(query, by);
  const bench = byRecording ? await recordings(query, status) : await passages(query, by, status, rates.count);
  root.append(
    h("div", { class: "title" }, h("h1", {}, "Review"), bench.help ?? ""),
    filters(query, byRecording),
    h("div", { class: "desk wide" }, h("div", { class: "body" }, status,
      query.get("job") ? h("p", {}, h("a", { href: "#/review?by=recording" }, "All recordings")) : null, bench.element),
    h("aside", { class: "beside", "aria-label": "Error rate" }, byRecording ? null : h("label", { class: "small" }, "Decisions are signed by", author), rates.element)));
  return { leave: () => bench.leave?.() };
}

function filters(query, byRecording) {
  const chosen = [...Object.keys(FILTERS), "reason", "checked", "closed", "by"].filter((name) => query.get(name));
  const form = h("form", { class: "filters", onsubmit: (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    if (!wanted.has("by")) for (const name of OF) if (query.get(name)) wanted.set(name, query.get(name));
    location.hash = `#/review?${wanted}`;
  } },
  Object.entries(FILTERS).map(([name, [title, given]]) => h("label", {}, title, h("input", { name, ...given, value: query.get(name) }))),
  h("label", {}, "Reason", h("select", { name: "reason" }, h("option", { value: "" }, "any"),
    Object.entries(REASONS).map(([value, title]) => h("option", { value, selected: query.get("reason") === value }, title)))),
  h("label", {}, "List", h("select", { name: "by" }, h("option", { value: "" }, "passages"),
    h("option", { value: "recording", selected: byRecording }, "recordings"))),
  h("label", {}, "Show", h("select", { name: "checked", disabled: byRecording }, h("option", { value: "" }, "not checked"),
    h("option", { value: "true", selected: query.get("checked") === "true" }, "checked"))),
  h("label", {}, "Closed passages", h("select", { name: "closed", disabled: byRecording }, h("option", { value: "" }, "left out"),
    h("option", { value: "true", selected: query.get("closed") === "true" }, "shown, which is logged"))),
  h("button", { class: "primary" }, "Filter"));
  return h("details", { class: "choose", open: chosen.length > 0 },
    h("summary", {}, chosen.length ? `Chosen: ${chosen.map((name) => CHOSEN[name] ?? REASONS[query.get(name)] ?? query.get(name)).join(", ")}` : "Choose what to review"), form);
}

function parametersOf(query, names, cursor) {
  const parameters = new URLSearchParams({ limit: String(PAGE) });
  for (const name of names) if (query.get(name)) parameters.set(name, query.get(name));
  if (cursor) parameters.set("cursor", cursor);
  return parameters;
}

async function passages(query, by, status, decidedOne) {
  const items = [];
  const rows = [];
  const decisions = [];
  const records = new Map();
  const links = new Map();
  const list = h("ol", { class: "queue", "aria-label": "Passages" });
  const audio = h("audio", { preload: "auto" });
  const help = helpOf("Keys of the review", KEYS);
  const opening = query.get("closed") === "true" ? "?closed=true" : "";
  let at = 0;
  let cursor = null;
  let until = 0;
  let playing = false; // what follows is played too once somebody has played one
  let busy = false;

  async function load() {
    const page = await get(`/v1/review?${parametersOf(query, [...Object.keys(FILTERS), "reason", "checked", "closed", "sample", "job"], cursor)}`);
    cursor = page.next_cursor;
    for (const one of page.items) {
      items.push(one);
      rows.push(h("li", { class: "passage" }));
      list.append(rows.at(-1));
      draw(items.length - 1);
    }
    tell();
  }
  function tell(what = "") {
    const kept = decisions.length ? ` ${number(decisions.length)} decided now.` : "";
    status.textContent = items.length ? `${what}${what ? " " : ""}The most doubtful first.${kept}` : "Nothing to review.";
  }
  function draw(place) {
    const one = items[place];
    const here = place === at;
    const row = rows[place];
    row.classList.toggle("current", here);
    row.classList.toggle("decided", one.checked_by !== null);
    if (here) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
    fill(row,
      h("div", { class: "of" }, h("strong", {}, one.name), " ", h("a", { href: `#/jobs/${one.job}?t=${one.start}`, title: "Open the recording here" }, clock(one.start)),
        h("span", { class: "quiet small" }, ` ${one.project}, ${one.model}`)),
      here ? h("p", { class: "text" }, textOf(one)) : h("button", { type: "button", class: "text", onclick: () => go(place) }, textOf(one)),
      h("div", { class: "quiet small", title: doubt(one) }, why(one), one.checked_by === null ? "" : h("span", { class: "kept" }, ` · checked by ${one.checked_by}`)),
      here ? acts(one) : null);
    if (here) mark(one, row.querySelector(".text"));
  }
  const textOf = (one) => one.text || h("em", { class: "quiet" }, `speech without words, ${(one.end - one.start).toFixed(1)} s`);
  function acts(one) {
    const button = (key, title, act, main) => h("button", { type: "button", class: main ? "primary small" : "small", onclick: act }, title, " ", h("kbd", {}, key));
    return h("div", { class: "row acts" }, button("Space", audio.paused ? "Play" : "Pause", toggle),
      one.checked_by === null ? button("Enter", "Accept", accept, true) : button("Enter", "Not checked after all", accept),
      button("E", "Correct", correct), button("N", "Next", () => go(at + 1)), decisions.length ? button("U", "Undo", undo) : null);
  }
  // Which words are doubtful, and the one that is spoken.
  async function mark(one, element) {
    const words = await wordsOf(one.job);
    if (!words || !rows[at].contains(element) || items[at] !== one || one.edited) return;
    const own = words.slice(one.first_word, one.last_word + 1).filter((word) => word.channel === one.channel);
    fill(element, own.length ? own.map((word, nth) => [nth && isApart(own[nth - 1].text, word.text) ? " " : "", h("span", { class: `word${word.confidence < DOUBT ? " doubt" : ""}`, "data-start": String(word.start),
      "data-end": String(word.end) }, word.text)]) : textOf(one));
  }
  function wordsOf(job) {
    if (!records.has(job)) {
      records.set(job, get(`/v1/jobs/${job}`).then(async (shown) => shown.words > MARKED_WORDS ? null
        : (await readRecord(await ask(`/v1/jobs/${job}/transcript${opening ? `${opening}&` : "?"}original=true`), () => {})).words).catch(() => null));
      if (records.size > 8) records.delete(records.keys().next().value);
    }
    return records.get(job);
  }
  async function go(place) {
    if (!items.length) return;
    audio.pause();
    const before = at;
    at = Math.min(Math.max(place, 0), items.length - 1);
    if (place >= items.length) notice("This was the last passage.");
    draw(before);
    if (before !== at) draw(at);
    rows[at].scrollIntoView({ block: "center" });
    if (playing && before !== at) play();
    if (cursor && items.length - at < AHEAD && !busy) {
      busy = true;
      await load().finally(() => { busy = false; });
    }
  }
  function next() {
    const open = items.findIndex((one, place) => place > at && one.checked_by === null);
    return go(open < 0 ? at + 1 : open);
  }
  async function play() {
    const one = items[at];
    playing = true;
    const link = links.get(one.job) ?? await audioLink(one.job, opening);
    if (typeof link !== "string") return notice(link.message, true);
    links.set(one.job, link);
    if (items[at] !== one) return;
    if (audio.getAttribute("src") !== link) audio.src = link;
    until = one.end + AROUND_S;
    audio.currentTime = Math.max(0, one.start - AROUND_S);
    await audio.play().catch(() => {});
  }
  function toggle() {
    if (!audio.paused) audio.pause();
    else if (audio.currentTime > items[at].start && audio.currentTime < items[at].end && until === items[at].end + AROUND_S) audio.play().catch(() => {});
    else play();
  }
  const follow = () => {
    if (audio.currentTime >= until) audio.pause();
    for (const word of rows[at]?.querySelectorAll(".word") ?? []) {
      word.classList.toggle("lit", !audio.paused && Number(word.dataset.start) <= audio.currentTime && audio.currentTime < Number(word.dataset.end));
    }
    if (!audio.paused) requestAnimationFrame(follow);
  };
  for (const name of ["play", "pause"]) {
    audio.addEventListener(name, () => {
      const first = rows[at]?.querySelector(".acts button")?.firstChild;
      if (first) first.textContent = audio.paused ? "Play" : "Pause";
      follow();
    });
  }
  // A link lasts for some hours: the next press asks for a new one.
  audio.addEventListener("error", () => {
    links.clear();
    notice("The recording could not be played. Press Space to try again.", true);
  });
  async function decide(act) {
    if (busy || !items.length) return;
    busy = true;
    try {
      await act(items[at]);
    } catch (error) {
      notice(error.message, true);
    }
    busy = false;
  }
  const check = (one, checked) => send("POST", `/v1/jobs/${one.job}/passages/${one.passage}/check`, { checked, author: by() });
  async function keep(one, shown, revision = null) {
    decisions.push({ place: items.indexOf(one), revision, before: { checked_by: one.checked_by, text: one.text } });
    Object.assign(one, shown);
    tell(revision !== null ? "Corrected." : shown.checked_by === null ? "Not checked after all." : "Accepted.");
    decidedOne();
    busy = false;
    await next();
  }
  const accept = () => decide(async (one) => keep(one, { checked_by: (await check(one, one.checked_by === null)).checked_by }));
  const undo = () => decide(async () => {
    const last = decisions.at(-1);
    if (!last) return notice("Nothing to undo.");
    const one = items[last.place];
    if (last.revision !== null) await send("POST", `/v1/jobs/${one.job}/edits/${last.revision}/undo${opening}`, { author: by() });
    await check(one, last.before.checked_by !== null);
    decisions.pop();
    Object.assign(one, last.before, { edited: false });
    tell("Undone.");
    decidedOne();
    const was = playing;
    playing = false;
    busy = false;
    await go(last.place);
    playing = was;
  });
  const open = (one) => { location.hash = `#/jobs/${one.job}?t=${one.start}`; };
  function correct() {
    const one = items[at];
    const words = one.text.split(/\s+/).filter(Boolean).map((text) => ({ text }));
    // Words between which another channel speaks, and speech without words, are corrected in the recording.
    if (one.edited || words.length !== one.last_word - one.first_word + 1 || !words.length) return open(one);
    const input = h("textarea", { rows: "4", "aria-label": "Text of this passage" }, one.text);
    const other = h("p", { class: "card error small", role: "alert", hidden: true });
    let seen = 0;
    const form = h("form", { class: "editor", onsubmit: (event) => { event.preventDefault(); save(); } }, input, other,
      h("div", { class: "row" }, h("button", { class: "primary small" }, "Save ", h("kbd", {}, "Enter")),
        h("button", { type: "button", class: "small", onclick: cancel }, "Cancel ", h("kbd", {}, "Esc"))));
    function cancel() {
      draw(at);
    }
    const save = () => decide(async () => {
      const change = changeOf(words, [], [0, words.length - 1], input.value);
      if (!change) return keep(one, { checked_by: (await check(one, true)).checked_by });
      const range = { first_word: one.first_word + change.first_word, last_word: one.first_word + change.last_word, text: change.text };
      try {
        const edit = await send("POST", `/v1/jobs/${one.job}/edits${opening}`, { ...range, seen, author: by() });
        await keep(one, { checked_by: edit.author, text: input.value.trim(), edited: true }, edit.revision);
        offerSpread(one.job, edit, opening, () => {}).catch((error) => notice(error.message, true));
      } catch (error) {
        if (error.code !== "edited") throw error;
        seen = error.body.other.revision;
        other.hidden = false;
        other.textContent = `${error.body.other.author} changed these words, to “${error.body.other.text ?? "the same words"}”. Save again to replace that with yours.`;
      }
    });
    form.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape") cancel();
      if (event.key === "Enter" && event.target === input && !event.isComposing) {
        event.preventDefault();
        save();
      }
    });
    rows[at].querySelector(".acts").remove();
    rows[at].querySelector(".text").replaceWith(form);
    input.focus();
    form.scrollIntoView({ block: "nearest" });
  }
  function press(event) {
    const typing = event.target.closest?.("input, select, textarea, dialog, summary");
    if (typing || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !items.length) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (["Enter", " "].includes(key) && event.target.closest?.("a, button")) return;
    const act = { " ": toggle, r: play, enter: accept, Enter: accept, e: correct, n: () => go(at + 1), p: () => go(at - 1), u: undo,
      o: () => open(items[at]), "?": help.show, "<": () => faster(-1), ">": () => faster(1) }[key];
    if (!act) return;
    event.preventDefault();
    act();
  }
  function faster(step) {
    const place = SPEEDS.indexOf(audio.playbackRate) + step;
    audio.defaultPlaybackRate = audio.playbackRate = SPEEDS[Math.min(Math.max(place, 0), SPEEDS.length - 1)];
    notice(`Speed ${audio.playbackRate}×`);
  }
  document.addEventListener("keydown", press);
  await load().catch((error) => {
    document.removeEventListener("keydown", press);
    throw error;
  });
  const keys = h("p", { class: "quiet small keys" }, [["R", "play again"], ["<", "slower"], [">", "faster"], ["P", "the one before"], ["O", "open the recording"], ["?", "all keys"]]
    .map(([key, does]) => h("span", {}, h("kbd", {}, key), ` ${does}`)));
  return { help: help.button, element: h("div", {}, audio, keys, list), leave: () => {
    document.removeEventListener("keydown", press);
    audio.pause();
  } };
}

async function recordings(query, status) {
  const list = h("div", { class: "hits" });
  const more = h("button", { type: "button", hidden: true }, "More");
  async function load(cursor) {
    const page = await get(`/v1/review/recordings?${parametersOf(query, [...Object.keys(FILTERS), "reason"], cursor)}`);
    list.append(...page.items.map(recording));
    more.hidden = !page.next_cursor;
    more.onclick = () => load(page.next_cursor).catch((error) => notice(error.message, true));
    status.textContent = list.childElementCount ? "The most doubtful first. Follow a name to its passages." : "Nothing to review.";
  }
  await load(null);
  return { element: h("div", {}, list, h("p", {}, more)) };
}

// What random samples say of the error rate, and a form that draws one. `count()` looks again after a decision.
async function ratesOf(query, author) {
  const scope = () => SCOPE.filter((name) => query.get(name)).map((name) => [name, query.get(name)]);
  const margin = h("input", { type: "number", min: "0.1", max: "50", step: "0.1", value: "2", class: "points" });
  const needed = h("p", { class: "quiet small", role: "status" });
  const list = h("div");
  const points = () => String(Number(margin.value) / 100);
  async function size() {
    const answer = await get(`/v1/review/size?${new URLSearchParams([...scope(), ["margin", points()]])}`);
    needed.textContent = `Listen to ${number(answer.passages)} of ${number(answer.population)} passages.`;
  }
  async function count() {
    const own = query.get("project") ? `?${new URLSearchParams({ project: query.get("project") })}` : "";
    const { items } = await get(`/v1/review/samples${own}`);
    const mine = items.find((one) => one.id === query.get("sample"));
    fill(list, [...(mine ? [mine] : []), ...items.filter((one) => one !== mine)].slice(0, 6).map((one) => h("div", { class: one === mine ? "rate mine" : "rate" },
      h("a", { href: `#/review?sample=${one.id}`, class: "small" }, [one.project, one.batch, one.model].filter(Boolean).join(", ")),
      h("p", {}, rate(one.estimate)), h("p", { class: "quiet small" }, `${number(one.estimate.checked)} of ${number(one.size)} checked.`,
        Object.keys(one.by_model).length > 1 ? Object.entries(one.by_model).map(([name, each]) => [h("br"), `${name}: `, rate(each)]) : null))));
    if (!items.length) fill(list, h("p", { class: "small" }, "Not known yet: the most doubtful passages say nothing about the rest. A random sample does."));
  }
  const failed = (error) => { needed.textContent = error.message; };
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    try {
      const sample = await send("POST", "/v1/review/samples", { ...Object.fromEntries(scope()), margin: Number(points()), author: author() });
      location.hash = `#/review?${new URLSearchParams([...scope(), ["sample", sample.id]])}`;
    } catch (error) {
      notice(error.message, true);
    }
  } }, h("label", { class: "small" }, "Know it within ± points", margin), needed, h("button", { class: "small" }, "Draw a sample"));
  margin.addEventListener("change", () => size().catch(failed));
  await Promise.all([count(), size().catch(failed)]);
  return { element: h("section", {}, h("h2", {}, "Error rate"), list, form), count: () => count().catch(failed) };
}

const percent = (value) => `${(100 * value).toFixed(1)} %`;

function rate(one) {
  if (one.rate === null) return "Nothing known yet.";
  return [h("strong", {}, `${percent(one.rate)} of the words are wrong`), one.low === null ? "." : `, 95 % interval ${percent(one.low)} to ${percent(one.high)}.`];
}

function recording(one) {
  return h("div", { class: "hit" }, h("span", { class: "at" }, `${Math.round(100 * one.doubt)} %`),
    h("span", {}, h("a", { href: `#/review?job=${one.job}` }, one.name), h("span", { class: "quiet small" }, ` ${one.project}, ${one.model}`),
      h("br"), h("span", { class: "quiet small" }, `${one.unchecked} of ${one.passages} passages to check; `, doubt(one))));
}

const reasons = (one) => Object.entries(one.doubts).filter(([, value]) => value >= 0.005).sort(([, a], [, b]) => b - a);
const why = (one) => reasons(one).map(([name]) => REASONS[name]).join(", ");

function doubt(one) {
  const each = reasons(one).map(([name, value]) => `${REASONS[name]} ${Math.round(100 * value)} %`);
  return `doubt ${Math.round(100 * one.doubt)} %${each.length ? `: ${each.join(", ")}` : ""}`;
}
