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
  const form = h("form", { class: "filters", onsubmit: (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    location.hash = `#/review?${wanted}`;
  } },
  Object.entries(FILTERS).map(([name, [title, given]]) => h("label", {}, title, h("input", { name, ...given, value: query.get(name) }))),
  h("label", {}, "Reason", h("select", { name: "reason" }, h("option", { value: "" }, "any"),
    Object.entries(REASONS).map(([value, title]) => h("option", { value, selected: query.get("reason") === value }, title)))),
  h("label", {}, "Show", h("select", { name: "checked" }, h("option", { value: "" }, "not checked"),
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
    for (const name of [...Object.keys(FILTERS), "reason", "checked"]) if (query.get(name)) parameters.set(name, query.get(name));
    if (cursor) parameters.set("cursor", cursor);
    const page = await get(`/v1/review?${parameters}`);
    list.append(...page.items.map((one) => passage(one, () => author.value.trim() || null)));
    shown += page.items.length;
    more.hidden = !page.next_cursor;
    more.onclick = () => load(page.next_cursor).catch((error) => notice(error.message, true));
    status.textContent = shown ? "The most doubtful first. Follow a time to listen to the passage and correct it." : "Nothing to review.";
  }
  root.append(h("h1", {}, "Review"), form, h("p", {}, author), status, list, h("p", {}, more));
  await load(null);
  return {};
}

function passage(one, author) {
  const why = Object.entries(one.doubts).filter(([, value]) => value >= 0.005).map(([name, value]) => `${REASONS[name]} ${Math.round(100 * value)} %`);
  const mark = h("button", { type: "button", class: "small" });
  const by = h("span", { class: "quiet small" });
  function draw(now) {
    mark.textContent = now.checked_by === null ? "Checked" : "Take back";
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
      h("br"), h("span", { class: "quiet small" }, `doubt ${Math.round(100 * one.doubt)} %`, why.length ? `: ${why.join(", ")} ` : " "), mark, by));
}
