// The passages that people should listen to, the most doubtful first, each with a link to play and correct it there.

import { AUTHOR } from "./edits.js";
import { clock, h, notice } from "./dom.js";
import { get, send } from "./http.js";

const REASONS = { confidence: "uncertain words", versions: "other words in another version", speech: "speech and words do not match", language: "language changes" };
const FILTERS = {
  project: ["Project", { maxlength: "64" }],
  batch: ["Batch", { maxlength: "64" }],
  tag: ["Tag", { maxlength: "300", placeholder: "key or key=value" }],
  model: ["Model", { maxlength: "200" }],
};
const PAGE = 25;

export async function showReview(root, query) {
  const byRecording = query.get("by") === "recording";
  const form = h("form", { class: "filters", onsubmit: (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    location.hash = `#/review?${wanted}`;
  } },
  Object.entries(FILTERS).map(([name, [title, given]]) => h("label", {}, title, h("input", { name, ...given, value: query.get(name) }))),
  h("label", {}, "Reason", h("select", { name: "reason" }, h("option", { value: "" }, "any"),
    Object.entries(REASONS).map(([value, title]) => h("option", { value, selected: query.get("reason") === value }, title)))),
  h("label", {}, "List", h("select", { name: "by" }, h("option", { value: "" }, "passages"),
    h("option", { value: "recording", selected: byRecording }, "recordings"))),
  h("label", {}, "Show", h("select", { name: "checked", disabled: byRecording }, h("option", { value: "" }, "not checked"),
    h("option", { value: "true", selected: query.get("checked") === "true" }, "checked"))),
  h("button", { class: "primary" }, "Filter"));
  const author = h("input", { type: "text", maxlength: "100", value: localStorage.getItem(AUTHOR) ?? "", placeholder: "Your name", "aria-label": "Your name",
    onchange: () => localStorage.setItem(AUTHOR, author.value.trim()) });
  const status = h("p", { class: "quiet", role: "status" });
  const list = h("div", { class: "hits" });
  const more = h("button", { type: "button", hidden: true }, "More");
  let shown = 0;
  async function load(cursor) {
    const parameters = new URLSearchParams({ limit: String(PAGE) });
    for (const name of [...Object.keys(FILTERS), "reason", ...(byRecording ? [] : ["checked", "sample", "job"])]) if (query.get(name)) parameters.set(name, query.get(name));
    if (cursor) parameters.set("cursor", cursor);
    const page = await get(`/v1/review${byRecording ? "/recordings" : ""}?${parameters}`);
    list.append(...page.items.map((one) => byRecording ? recording(one) : passage(one, () => author.value.trim() || null)));
    shown += page.items.length;
    more.hidden = !page.next_cursor;
    more.onclick = () => load(page.next_cursor).catch((error) => notice(error.message, true));
    const follow = byRecording ? "a name to its passages" : "a time to listen to the passage and correct it";
    status.textContent = shown ? `The most doubtful first. Follow ${follow}.` : "Nothing to review.";
  }
  root.append(h("h1", {}, "Review"), await samples(query, () => author.value.trim() || null), form,
    ...(query.get("job") ? [h("p", {}, h("a", { href: "#/review?by=recording" }, "All recordings"))] : []),
    ...(byRecording ? [] : [h("p", {}, author)]), status, list, h("p", {}, more));
  await load(null);
  return {};
}

// The samples that were drawn with the error rates that they say, and a form that draws one.
async function samples(query, author) {
  const box = h("details", { open: query.get("sample") !== null }, h("summary", {}, "Error rate"));
  const scope = () => ["project", "batch", "model"].filter((name) => query.get(name)).map((name) => [name, query.get(name)]);
  const margin = h("input", { type: "number", min: "0.1", max: "50", step: "0.1", value: "2", "aria-label": "Points", class: "points" });
  const needed = h("span", { class: "quiet small", role: "status" });
  const points = () => String(Number(margin.value) / 100);
  async function count() {
    const size = await get(`/v1/review/size?${new URLSearchParams([...scope(), ["margin", points()]])}`);
    needed.textContent = ` Listen to ${size.passages} of ${size.population} passages.`;
  }
  const form = h("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    try {
      const body = { ...Object.fromEntries(scope()), margin: Number(points()), author: author() };
      const sample = await send("POST", "/v1/review/samples", body);
      location.hash = `#/review?${new URLSearchParams([...scope(), ["sample", sample.id]])}`;
    } catch (error) {
      notice(error.message, true);
    }
  } }, h("label", {}, "Know it within ± points ", margin), h("button", { class: "small" }, "Draw a sample"), needed);
  const failed = (error) => { needed.textContent = ` ${error.message}`; };
  margin.addEventListener("change", () => count().catch(failed));
  const own = query.get("project") ? `?${new URLSearchParams({ project: query.get("project") })}` : "";
  const page = await get(`/v1/review/samples${own}`);
  box.append(h("p", { class: "quiet small" }, "A random sample of the passages of the project, batch and model below tells how many words are wrong."), form,
    ...page.items.map((one) => h("p", { class: "small" }, h("a", { href: `#/review?sample=${one.id}` }, [one.project, one.batch, one.model].filter(Boolean).join(", ")),
      `: ${one.estimate.checked} of ${one.size} checked. `, rate(one.estimate),
      Object.keys(one.by_model).length > 1 ? Object.entries(one.by_model).map(([name, each]) => ` ${name}: ${rate(each)}`) : null)));
  await count().catch(failed);
  return box;
}

const percent = (value) => `${(100 * value).toFixed(1)} %`;

function rate(one) {
  if (one.rate === null) return "Nothing known yet.";
  return `WER ${percent(one.rate)}${one.low === null ? "" : `, 95 % interval ${percent(one.low)} to ${percent(one.high)}`}.`;
}

function passage(one, author) {
  const mark = h("button", { type: "button", class: "small" });
  const by = h("span", { class: "quiet small" });
  function draw(now) {
    mark.textContent = now.checked_by === null ? "Mark as checked" : "Undo";
    mark.title = now.checked_by === null ? "I listened: the words are right" : "Not checked after all";
    by.textContent = now.checked_by === null ? "" : ` checked by ${now.checked_by}`;
    mark.onclick = async () => {
      mark.disabled = true;
      try {
        const body = { checked: now.checked_by === null, author: author() };
        draw(await send("POST", `/v1/jobs/${one.job}/passages/${one.passage}/check`, body));
      } catch (error) {
        notice(error.message, true);
      }
      mark.disabled = false;
    };
  }
  draw(one);
  return h("div", { class: "hit" }, h("a", { class: "at", href: `#/jobs/${one.job}?t=${one.start}`, title: "Play and correct" }, clock(one.start)),
    h("span", {}, h("strong", {}, one.name), h("span", { class: "quiet small" }, ` ${one.project}, ${one.model}`),
      h("br"), one.text || h("em", { class: "quiet" }, `speech without words, ${(one.end - one.start).toFixed(1)} s`),
      h("br"), h("span", { class: "quiet small" }, doubt(one), " "), mark, by));
}

function recording(one) {
  return h("div", { class: "hit" }, h("span", { class: "at" }, `${Math.round(100 * one.doubt)} %`),
    h("span", {}, h("a", { href: `#/review?job=${one.job}` }, one.name), h("span", { class: "quiet small" }, ` ${one.project}, ${one.model}`),
      h("br"), h("span", { class: "quiet small" }, `${one.unchecked} of ${one.passages} passages to check; `, doubt(one))));
}

function doubt(one) {
  const why = Object.entries(one.doubts).filter(([, value]) => value >= 0.005).map(([name, value]) => `${REASONS[name]} ${Math.round(100 * value)} %`);
  return `doubt ${Math.round(100 * one.doubt)} %${why.length ? `: ${why.join(", ")}` : ""}`;
}
