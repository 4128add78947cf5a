// Routes the address to a view. A view draws once and may return { refresh, leave, live }: `live` is an event stream
// that signals when to refresh.

import { h, notice } from "./dom.js";
import { Problem } from "./http.js";
import { stayLive } from "./live.js";
import { listenForDrops } from "./submit.js";

const REFRESH_MS = 2000;
const ANSWER_MS = 6000; // a server that answers later than this is said not to answer
const CALM_BEATS = 5; // with a live stream, what events do not carry (such as the time left) is polled less often
const [ARCHIVE, SEARCH, REVIEW, SUBMIT, LIVE, SYSTEM] = ["#/", "#/search", "#/review", "#/submit", "#/live", "#/system"];
// Each address with its view, its title, and where it belongs in the navigation. A view is loaded when it is shown.
const VIEWS = [
  [/^\/$/, "./home.js", "showHome", "Archive", ARCHIVE],
  [/^\/jobs$/, "./jobs.js", "showJobs", "Recordings", ARCHIVE],
  [/^\/jobs\/(\w+)$/, "./job.js", "showJob", "Recording", ARCHIVE],
  [/^\/jobs\/(\w+)\/diff\/(\w+)$/, "./versions.js", "showDiff", "Versions", ARCHIVE],
  [/^\/batches\/(\w+)$/, "./batches.js", "showBatch", "Batch", ARCHIVE],
  [/^\/batches\/(\w+)\/diff$/, "./versions.js", "showBatchDiff", "Versions", ARCHIVE],
  [/^\/glossaries$/, "./glossaries.js", "showGlossaries", "Glossaries", ARCHIVE],
  [/^\/glossaries\/([\w.@-]+)$/, "./glossaries.js", "showGlossary", "Glossary", ARCHIVE],
  [/^\/search$/, "./search.js", "showSearch", "Search", SEARCH],
  [/^\/review$/, "./review.js", "showReview", "Review", REVIEW],
  [/^\/submit$/, "./submit.js", "showSubmit", "Submit", SUBMIT],
  [/^\/(?:live|listen)$/, "./listen.js", "showListen", "Live", LIVE],
  [/^\/system$/, "./system.js", "showSystem", "System", SYSTEM],
  [/^\/batches$/, "./batches.js", "showBatches", "Batches", ARCHIVE],
  [/^\/sources$/, "./sources.js", "showSources", "Watched folders", SYSTEM],
  [/^\/sources\/(\w+)$/, "./sources.js", "showSource", "Watched folder", SYSTEM],
  [/^\/costs$/, "./costs.js", "showCosts", "Costs", SYSTEM],
];

const main = document.getElementById("main");
const gone = document.getElementById("gone");
let drawn = 0;
let view = null;
let stream = null;
let beats = 0;

async function draw(moved) {
  const drawing = ++drawn;
  view?.leave?.();
  stream?.leave();
  view = stream = null;
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  const route = VIEWS.map(([pattern, ...view]) => [pattern.exec(path), ...view]).find(([match]) => match);
  for (const link of document.querySelectorAll(".bar nav a")) {
    if (link.hash === route?.[4]) link.setAttribute("aria-current", link.hash.slice(1) === path ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
  document.getElementById("find").hidden = path === "/search";
  if (!route) {
    main.replaceChildren(h("h1", {}, "Page not found"), h("a", { href: "#/" }, "Go to the archive"));
    return;
  }
  const [match, module, name, title] = route;
  document.title = path === "/" ? "Spool" : `${title} · Spool`;
  const root = h("div");
  try {
    const shown = await (await import(module))[name](root, ...match.slice(1), new URLSearchParams(query));
    if (drawing !== drawn) return shown?.leave?.();
    view = shown ?? null;
    if (view?.title) document.title = `${view.title} · Spool`;
    stream = view?.live ? stayLive(view.live, view.refresh) : null;
    main.replaceChildren(root);
  } catch (error) {
    if (drawing !== drawn) return;
    main.replaceChildren(h("h1", {}, title), h("p", { class: "card error" }, error.message));
    if (!(error instanceof Problem)) view = { refresh: () => draw(false) };
  }
  if (moved) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

const unanswered = () => new Promise((_, reject) => setTimeout(() => reject(new TypeError("no answer")), ANSWER_MS));

async function beat() {
  if (!document.hidden && view?.refresh && (!stream?.isLive() || ++beats % CALM_BEATS === 0)) {
    try {
      await Promise.race([view.refresh(), unanswered()]);
      gone.hidden = true;
    } catch (error) {
      if (error instanceof TypeError) gone.hidden = false; // what fetch throws where nobody answers
      else notice(error.message, true);
    }
  }
  setTimeout(beat, REFRESH_MS);
}

document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = new FormData(event.target).get("q").trim();
  if (words) location.hash = `#/search?${new URLSearchParams({ q: words })}`;
});
window.addEventListener("hashchange", () => {
  for (const dialog of document.querySelectorAll("dialog[open]:not(.required)")) dialog.close(); // they belong to the view that was left
  draw(true);
});
listenForDrops();
draw(false).then(() => setTimeout(beat, REFRESH_MS));
