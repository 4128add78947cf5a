// The search over all transcripts: the words around each hit, with a link to the recording at that time. Without words
// it shows what can be searched.

import { clock, count, day, fill, h, language, number } from "./dom.js";
import { get } from "./http.js";
import { momentOf } from "./jobs.js";

const LIMIT = 50;
const SAME_S = 1; // hits of two transcripts of a recording that are no further apart are the same place
const FILTERS = ["project", "batch", "speaker", "language", "tag", "created_from", "created_to", "confidence", "alternatives", "sound"];
const EXAMPLES = [["storm light", "both words, near each other"], ["thirty days", "the number in words or in digits"], ["\"kept the light\"", "a phrase"], ["light*", "words that begin so"],
  ["kowalski~", "words that sound like it"], ["fog NEAR/3 horn", "at most three words between them"], ["light -storm", "without a word"]];

export async function showSearch(root, query) {
  const asked = query.get("q") ?? "";
  const words = h("input", { name: "q", type: "search", maxlength: "500", value: asked, required: true, "aria-label": "Words" });
  const narrowing = FILTERS.filter((name) => query.get(name)).length;
  const filters = h("div", { class: "choices" });
  const form = h("form", { role: "search", "aria-label": "Search and its filters", onsubmit: (event) => {
    event.preventDefault();
    location.hash = `#/search?${new URLSearchParams([...new FormData(form)].filter(([, value]) => value))}`;
  } },
  h("div", { class: "asked" }, words, h("button", { class: "primary" }, "Search")),
  h("details", {}, h("summary", {}, narrowing ? `Narrow down (${count(narrowing, "filter", "filters")})` : "Narrow down"), filters));
  const status = h("p", { class: "quiet", role: "status" });
  const heard = h("div", {});
  const list = h("div", { class: "hits" });
  const more = h("button", { type: "button", hidden: true }, "More");
  const shown = { recordings: new Map(), hits: 0 };
  async function load(cursor) {
    const parameters = new URLSearchParams({ q: asked, limit: String(LIMIT) });
    for (const name of FILTERS) {
      const value = query.get(name);
      if (value) parameters.set(name, name.startsWith("created") ? momentOf(name, value) : value);
    }
    if (parameters.get("sound")) {
      parameters.set("sound", asked.replace(/["*~]/g, " "));
      parameters.delete("q");
    }
    if (cursor) parameters.set("cursor", cursor);
    const page = await get(`/v1/search?${parameters}`);
    fill(heard, page.sounds ? whatWasHeard(page.sounds) : []);
    for (const hit of page.items) {
      if (!shown.recordings.has(hit.recording)) {
        const section = h("section", {}, recordingOf(hit));
        shown.recordings.set(hit.recording, { section, places: [] });
        list.append(section);
      }
      const { section, places } = shown.recordings.get(hit.recording);
      const place = places.find(({ jobs, start }) => !jobs.has(hit.job) && Math.abs(start - hit.start) <= SAME_S);
      if (place) {
        place.jobs.add(hit.job);
        place.also.hidden = false;
        place.also.append(place.jobs.size > 2 ? "; " : "Also in ", elsewhere(hit, place.name));
      } else {
        const also = h("p", { class: "quiet small", hidden: true });
        places.push({ jobs: new Set([hit.job]), start: hit.start, name: hit.name, also });
        section.append(passage(hit), also);
      }
    }
    shown.hits += page.items.length;
    more.hidden = !page.next_cursor;
    more.onclick = () => load(page.next_cursor);
    // A page that is not full was cut short before its hits were: there may be no more.
    const cut = page.next_cursor && page.items.length === LIMIT;
    status.textContent = cut ? `More than ${number(shown.hits)} found` : page.next_cursor ? `${number(shown.hits)} found so far`
      : shown.hits ? `${number(shown.hits)} found` : "Nothing found.";
  }
  root.append(h("h1", {}, "Search"), form, status, heard, list, h("p", {}, more));
  const [{ collections }, { items: models }] = await Promise.all([get("/v1/overview?batches=100"), get("/v1/models")]);
  fill(filters, filtersOf(query, collections, models));
  if (asked) await load(null);
  else {
    fill(list, whatCanBeSearched(query, collections));
    queueMicrotask(() => words.focus());
  }
  return {};
}

function filtersOf(query, collections, models) {
  const choice = (name, title, options) => h("label", {}, title, h("select", { name }, h("option", { value: "" }, "all"),
    options.map(([value, label]) => h("option", { value, selected: query.get(name) === value }, label))));
  const field = (name, title, given) => h("label", {}, title, h("input", { name, ...given, value: query.get(name) }));
  const named = (value, options) => (value && !options.some(([known]) => known === value) ? [[value, value], ...options] : options);
  const batches = collections.filter((one) => one.batch !== null).map((one) => [one.batch, one.name]);
  const projects = collections.filter((one) => one.batch === null).map((one) => [one.project, one.project]);
  const languages = [...new Set(models.flatMap((one) => one.languages))].map((code) => [code, language(code)])
    .sort(([, one], [, other]) => one.localeCompare(other));
  return [
    choice("project", "Project", named(query.get("project"), projects)), choice("batch", "Batch", named(query.get("batch"), batches)),
    field("speaker", "Speaker", { maxlength: "200", placeholder: "name or label" }),
    choice("language", "Language", named(query.get("language"), languages)),
    field("created_from", "Submitted from", { type: "date" }), field("created_to", "until", { type: "date" }),
    field("tag", "Tag", { maxlength: "300", placeholder: "key or key=value" }),
    field("confidence", "Confidence", { type: "number", min: "0", max: "1", step: "0.05", placeholder: "at least" }),
    h("label", { class: "inline" }, h("input", { type: "checkbox", name: "alternatives", value: "true",
      checked: query.get("alternatives") === "true" }), "Also alternative words, if a recording kept them"),
    h("label", { class: "inline" }, h("input", { type: "checkbox", name: "sound", value: "true",
      checked: query.get("sound") === "true" }), "Also what sounds like it, in recordings with a second witness"),
  ];
}

// What a search by sound looked for, and what it could not search.
function whatWasHeard(sounds) {
  const without = sounds.without_sounds;
  return h("p", { class: "quiet small" }, `Sounds like ${sounds.phones.join(" or ")}${
    sounds.source === "letters" ? ", read letter by letter" : ""}.`,
  without ? ` ${count(without, "transcript", "transcripts")} cannot be searched by sound: without a second witness, or in another language.` : null,
  sounds.damaged.length ? ` Left out, since what was heard is damaged: ${sounds.damaged.join(", ")}.` : null);
}

function whatCanBeSearched(query, collections) {
  const link = (more, label) => h("a", { href: `#/search?${new URLSearchParams({ ...Object.fromEntries(query), ...more })}` }, label);
  const projects = collections.filter((one) => one.batch === null);
  const done = projects.reduce((all, one) => all + one.counts.done, 0);
  if (!done) return h("p", {}, "Nothing is transcribed yet. What you ", h("a", { href: "#/submit" }, "submit"), " can be searched when it is done.");
  return [
    h("p", {}, `Every word of ${count(done, "transcript", "transcripts")}, with corrections, speakers' names and times:`),
    h("ul", { class: "examples" }, collections.filter((one) => one.counts.done).map((one) => h("li", {},
      one.batch === null ? h("a", { href: `#/jobs?project=${encodeURIComponent(one.project)}&state=done` }, one.name)
        : h("a", { href: `#/batches/${one.batch}` }, one.name), `, ${count(one.counts.done, "transcript", "transcripts")}`))),
    h("h2", {}, "How to ask"),
    h("ul", { class: "examples" }, EXAMPLES.map(([written, means]) => h("li", {}, link({ q: written }, written), ` – ${means}`))),
  ];
}

// The recording that the hits below it are in, with the model and the day of its transcript.
function recordingOf(hit) {
  const about = [hit.project, hit.model, hit.created_at ? day(hit.created_at) : null].filter(Boolean).join(" · ");
  return h("div", { class: "found" }, h("h2", {}, h("a", { href: `#/jobs/${hit.job}` }, hit.name)), h("span", { class: "quiet small" }, about));
}

// A hit in another version of the recording, or in a copy under another name.
function elsewhere(hit, name) {
  return h("a", { href: `#/jobs/${hit.job}?t=${hit.start}` }, [hit.name === name ? null : hit.name, hit.model, day(hit.created_at)]
    .filter(Boolean).join(", "));
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
    h("span", {}, hit.speaker ? h("strong", {}, `${hit.speaker_name ?? hit.speaker}: `) : null, text,
      hit.sound ? h("span", { class: "quiet small" }, ` sounds like it, ${Math.round(100 * hit.sound.certainty)} % sure`) : null));
}
