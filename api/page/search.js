// The search over all transcripts: the words around each hit, with a link to the job's page at that time.

import { clock, h } from "./dom.js";
import { get } from "./http.js";
import { momentOf } from "./jobs.js";

const LIMIT = 50;
const FILTERS = {
  speaker: ["Speaker", { maxlength: "200", placeholder: "name or label" }],
  project: ["Project", { maxlength: "64" }],
  batch: ["Batch", { maxlength: "64" }],
  tag: ["Tag", { maxlength: "300", placeholder: "key or key=value" }],
  language: ["Language", { maxlength: "3", pattern: "[a-z]{2,3}", placeholder: "code, as de" }],
  created_from: ["From", { type: "date" }],
  created_to: ["To", { type: "date" }],
  confidence: ["Confidence", { type: "number", min: "0", max: "1", step: "0.05", placeholder: "at least" }],
};

export async function showSearch(root, query) {
  const words = h("input", { name: "q", type: "search", maxlength: "500", value: query.get("q"), required: true });
  const form = h("form", { class: "filters", role: "search", "aria-label": "Search and its filters", onsubmit: (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    location.hash = `#/search?${wanted}`;
  } },
  h("label", { class: "wide" }, "Words", words),
  Object.entries(FILTERS).map(([name, [title, given]]) => h("label", {}, title, h("input", { name, ...given, value: query.get(name) }))),
  h("label", { class: "wide inline" }, h("input", { type: "checkbox", name: "alternatives", value: "true",
    checked: query.get("alternatives") === "true" }), " Also search alternative words, if a job kept them"),
  h("button", { class: "primary" }, "Search"));
  const status = h("p", { class: "quiet", role: "status" });
  const list = h("div", { class: "hits" });
  const more = h("button", { type: "button", hidden: true }, "More");
  const shown = { job: null, hits: 0 };
  async function load(cursor) {
    const parameters = new URLSearchParams({ q: query.get("q"), limit: String(LIMIT) });
    for (const name of [...Object.keys(FILTERS), "alternatives"]) {
      const value = query.get(name);
      if (value) parameters.set(name, name.startsWith("created") ? momentOf(name, value) : value);
    }
    if (cursor) parameters.set("cursor", cursor);
    const page = await get(`/v1/search?${parameters}`);
    for (const hit of page.items) {
      if (hit.job !== shown.job) list.append(h("h2", {}, h("a", { href: `#/jobs/${hit.job}` }, hit.name), " ",
        h("span", { class: "quiet small" }, hit.project)));
      shown.job = hit.job;
      list.append(passage(hit));
    }
    shown.hits += page.items.length;
    more.hidden = !page.next_cursor;
    more.onclick = () => load(page.next_cursor);
    // A page that is not full was cut short before its hits were: there may be no more.
    const cut = page.next_cursor && page.items.length === LIMIT;
    status.textContent = cut ? `More than ${shown.hits} found` : page.next_cursor ? `${shown.hits} found so far`
      : shown.hits ? `${shown.hits} found` : "Nothing found.";
  }
  root.append(h("h1", {}, "Search"), form, h("details", { class: "small quiet" }, h("summary", {}, "Search syntax"),
    h("ul", {}, [["storm light", "both words, near each other"], ["\"kept the light\"", "a phrase"], ["light*", "words that begin so"],
      ["kowalski~", "words that sound like it"], ["fog NEAR/3 horn", "at most three words between them"], ["light -storm", "without a word"]]
      .map(([written, means]) => h("li", {}, h("code", {}, written), ` ${means}`)))), status, list, h("p", {}, more));
  if (query.get("q")) await load(null);
  else queueMicrotask(() => words.focus());
  return {};
}

function passage(hit) {
  const text = [];
  let at = 0;
  for (const match of hit.matches) {
    if (match.first_character < at) continue;
    const href = `#/jobs/${hit.job}?t=${match.start}`;
    text.push(hit.text.slice(at, match.first_character),
      h("a", { class: "match", href, title: `Play from ${clock(match.start)}` }, hit.text.slice(match.first_character, match.last_character)));
    if (match.alternative) text.push(h("span", { class: "quiet" }, ` [heard beside it: ${match.alternative}${
      match.confidence === null ? "" : `, ${Math.round(100 * match.confidence)} %`}]`));
    at = match.last_character;
  }
  text.push(hit.text.slice(at));
  return h("p", { class: "hit" }, h("a", { class: "at", href: `#/jobs/${hit.job}?t=${hit.start}` }, clock(hit.start)),
    h("span", {}, hit.speaker ? h("strong", {}, `${hit.speaker_name ?? hit.speaker}: `) : null, text));
}
